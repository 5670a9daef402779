#!/usr/bin/python3
"""Stands in for Open MPI's mpiexec: starts ranks on hosts by ssh, and adds up what they bring.

It ends well only if every rank came from the host on which it was started, and ended well.
"""

import argparse
import os
import shlex
import socket
import subprocess

from peers import accept, call, say

parser = argparse.ArgumentParser()
parser.add_argument("--allow-run-as-root", action="store_true")
parser.add_argument("--host", required=True)
parser.add_argument("-np", type=int, required=True)
parser.add_argument("--prefix")
parser.add_argument("program", nargs=argparse.REMAINDER)
flags = parser.parse_args()

hosts = [host for host in flags.host.split(",") if host]
hub = socket.create_server(("", 0), backlog=64)
hub.settimeout(1)
address = f"{socket.gethostbyname(socket.gethostname())}:{hub.getsockname()[1]}"
ranks = []
for rank in range(flags.np):
    host = hosts[rank % len(hosts)]
    call(host, 22).close()
    variables = [f"MPI_HUB={address}", f"MPI_RANK={rank}", f"MPI_SIZE={flags.np}"]
    command = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['env', *variables, *flags.program])}"
    ranks.append(subprocess.Popen(["ssh", "-o", "BatchMode=yes", host, command]))
met = {}
while len(met) < flags.np:
    try:
        peer = accept(hub)
    except TimeoutError:
        failed = [rank.poll() for rank in ranks if rank.poll()]
        if failed:
            raise SystemExit(f"mpiexec: ranks ended with {failed}")
        continue
    rank, host = peer.readline().split()
    assert hosts[int(rank) % len(hosts)].split(".")[0] == host, (rank, host, hosts)
    met[int(rank)] = peer
assert sorted(met) == list(range(flags.np)), met
for peer in met.values():
    say(peer, sum(met))
codes = [rank.wait() for rank in ranks]
print("mpiexec:", len(codes), "ranks ended with", codes, flush=True)
raise SystemExit(max(codes))
