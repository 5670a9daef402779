//! A member of a gang that really meets its peers, as a training framework would.
//!
//! Every member listens on the same port at its own address, reads who the others are from
//! `/etc/volcano/*.host` (written by the `svc` plugin), connects to each of them by name and prints
//! whom it met. It ends well only if it met all of them. `examples/gang.yaml` runs three.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const PORT: u16 = 2222;
const HOSTS: &str = "/etc/volcano";
/// A peer may start a moment later than this one.
const ATTEMPTS: usize = 400;
const PAUSE: Duration = Duration::from_millis(25);

fn main() -> Result<()> {
    let me = fs::read_to_string("/etc/hostname").context("read /etc/hostname")?.trim().to_owned();
    let peers = peers()?;
    let address = (me.as_str(), PORT).to_socket_addrs().context("resolve my own name")?.next();
    let address = address.context("my own name has no address")?;
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
    println!("{me} listens on {address}");

    let server = std::thread::spawn({
        let (me, count) = (me.clone(), peers.len());
        move || greet(&listener, &me, count)
    });
    for peer in &peers {
        let name = meet(peer)?;
        println!("{me} met {name} at {peer}:{PORT}");
    }
    server.join().ok().context("the listening thread ended badly")??;
    println!("{me} met all {} members", peers.len());
    Ok(())
}

/// Every member of every task, this one too.
fn peers() -> Result<Vec<String>> {
    let mut peers = Vec::new();
    for entry in fs::read_dir(HOSTS).with_context(|| format!("read {HOSTS}"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "host") {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            peers.extend(text.split_whitespace().map(str::to_owned));
        }
    }
    ensure!(!peers.is_empty(), "{HOSTS} names no member");
    peers.sort();
    Ok(peers)
}

/// Tells `count` callers who this is.
fn greet(listener: &TcpListener, me: &str, count: usize) -> Result<()> {
    for _ in 0..count {
        let (mut caller, _) = listener.accept().context("accept a peer")?;
        caller.write_all(me.as_bytes()).context("greet a peer")?;
    }
    Ok(())
}

/// Calls a peer by name and gives what it says its name is.
fn meet(peer: &str) -> Result<String> {
    for attempt in 1..=ATTEMPTS {
        match (peer, PORT).to_socket_addrs().and_then(|mut all| {
            let address = all.next().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
            TcpStream::connect_timeout(&address, Duration::from_secs(2))
        }) {
            Ok(mut stream) => {
                let mut name = String::new();
                stream.read_to_string(&mut name).with_context(|| format!("read the name of {peer}"))?;
                ensure!(peer.starts_with(&name), "{peer} says that it is {name}");
                return Ok(name);
            }
            Err(error) if attempt == ATTEMPTS => return Err(error).with_context(|| format!("reach {peer}")),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    unreachable!("the last attempt returns")
}
