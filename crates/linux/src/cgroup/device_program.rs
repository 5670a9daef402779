//! The program that the kernel asks, in version 2 of control groups, whether a process of a group may use a device.
//!
//! A context of three words goes in: what is to be done with which kind of device, the major and the minor number; 1 comes out
//! for yes, 0 for no. Invariant: without a jump back, so that the kernel's check accepts it however many devices there are;
//! it lives as long as its group does.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;

use super::devices::{Device, DeviceKind};

/// One instruction, as the kernel's `struct bpf_insn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// The first operand in the lower half, the second in the upper.
    registers: u8,
    /// Of a jump or in memory.
    offset: i16,
    constant: i32,
}

// Codes of instructions: a class, what is done, and whether with a constant.
const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const MOVE: u8 = 0xb7;
const JUMP: u8 = 0x05;
const JUMP_IF_ANY_BIT: u8 = 0x45;
const JUMP_IF_OTHER: u8 = 0x55;
const EXIT: u8 = 0x95;

// Registers, some of them by what they have here.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

// Numbers of the kernel's `enum bpf_devcg_*`.
const KIND_BLOCK: i32 = 1;
const KIND_CHARACTER: i32 = 2;
const ACCESS_MAKE_NODE: i32 = 1;

const fn with_constant(code: u8, register: u8, offset: i16, constant: i32) -> Instruction {
    Instruction { code, registers: register, offset, constant }
}

const fn load(register: u8, offset: i16) -> Instruction {
    Instruction { code: LOAD_WORD, registers: register | CONTEXT << 4, offset, constant: 0 }
}

const fn answer(yes: bool) -> [Instruction; 2] {
    [with_constant(MOVE, RESULT, 0, yes as i32), with_constant(EXIT, 0, 0, 0)]
}

/// Allows reading and writing of these devices, and nothing else.
fn instructions(allowed: &[Device]) -> Vec<Instruction> {
    let mut program = vec![
        load(KIND, 0),
        with_constant(AND, KIND, 0, 0xffff),
        load(ACCESS, 0),
        with_constant(SHIFT_RIGHT, ACCESS, 0, 16),
        load(MAJOR, 4),
        load(MINOR, 8),
        with_constant(JUMP_IF_ANY_BIT, ACCESS, 1, ACCESS_MAKE_NODE),
        with_constant(JUMP, 0, 2, 0),
    ];
    program.extend(answer(false));
    for device in allowed {
        let kind = match device.kind {
            DeviceKind::Block => KIND_BLOCK,
            DeviceKind::Character => KIND_CHARACTER,
        };
        let numbers = [Some((KIND, kind)), Some((MAJOR, device.major.cast_signed()))];
        let minor = device.minor.map(|minor| (MINOR, minor.cast_signed()));
        let compared: Vec<_> = numbers.into_iter().chain([minor]).flatten().collect();
        let mut behind = 1 + compared.len() as i16;
        for (register, number) in compared {
            program.push(with_constant(JUMP_IF_OTHER, register, behind, number));
            behind -= 1;
        }
        program.extend(answer(true));
    }
    program.extend(answer(false));
    program
}

/// Has the kernel ask about each device that a process of the group uses.
pub(super) fn attach(group: &Path, allowed: &[Device]) -> io::Result<()> {
    let program = load_program(&instructions(allowed))?;
    let group = File::open(group)?;
    Ok(attach_program(&group, &program)?)
}

// Commands, types and flags of `bpf`.
const COMMAND_LOAD: libc::c_int = 5;
const COMMAND_ATTACH: libc::c_int = 8;
const TYPE_OF_DEVICES: u32 = 15;
const ATTACH_FOR_DEVICES: u32 = 6;
/// Groups below may have programs of their own, which are asked as well.
const ALLOW_MULTIPLE: u32 = 2;
/// That of this program; no function is called that wants another.
const LICENSE: &std::ffi::CStr = c"Apache-2.0";

/// The beginning of the kernel's `union bpf_attr` for [`COMMAND_LOAD`].
#[repr(C)]
struct LoadOrder {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The same for [`COMMAND_ATTACH`].
#[repr(C)]
struct AttachOrder {
    group: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

#[allow(unsafe_code)]
fn load_program(program: &[Instruction]) -> nix::Result<OwnedFd> {
    let order = LoadOrder {
        program_type: TYPE_OF_DEVICES,
        instruction_count: u32::try_from(program.len()).map_err(|_| Errno::E2BIG)?,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads `order`, the instructions and the license, which live until the call returns, and with no log
    // writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_bpf, COMMAND_LOAD, &raw const order, size_of::<LoadOrder>()) };
    let descriptor = i32::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[allow(unsafe_code)]
fn attach_program(group: &File, program: &OwnedFd) -> nix::Result<()> {
    let order = AttachOrder {
        group: group.as_raw_fd().cast_unsigned(),
        program: program.as_raw_fd().cast_unsigned(),
        attach_type: ATTACH_FOR_DEVICES,
        flags: ALLOW_MULTIPLE,
    };
    // SAFETY: the kernel reads `order`, which lives until the call returns, and writes nothing; both descriptors are open.
    let result = unsafe { libc::syscall(libc::SYS_bpf, COMMAND_ATTACH, &raw const order, size_of::<AttachOrder>()) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::process::Command;

    const READ: u32 = 2;
    const WRITE: u32 = 4;
    const MAKE_NODE: u32 = 1;
    const CHARACTER: u32 = 2;
    const BLOCK: u32 = 1;

    fn device(kind: DeviceKind, major: u32, minor: Option<u32>) -> Device {
        Device { kind, major, minor }
    }

    /// Follows a program as the kernel does.
    fn run(program: &[Instruction], context: [u32; 3]) -> u64 {
        let (mut registers, mut at) = ([0_u64; 11], 0);
        loop {
            let Instruction { code, registers: operands, offset, constant } = program[at];
            let (first, value) = (usize::from(operands & 0xf), i64::from(constant).cast_unsigned());
            at += 1;
            let jumps = match code {
                LOAD_WORD => {
                    assert_eq!(operands >> 4, CONTEXT);
                    registers[first] = context[usize::try_from(offset).unwrap() / 4].into();
                    false
                }
                AND => {
                    registers[first] &= value & u64::from(u32::MAX);
                    false
                }
                SHIFT_RIGHT => {
                    registers[first] = (registers[first] & u64::from(u32::MAX)) >> value;
                    false
                }
                MOVE => {
                    registers[first] = value;
                    false
                }
                JUMP => true,
                JUMP_IF_ANY_BIT => registers[first] & value != 0,
                JUMP_IF_OTHER => registers[first] != value,
                EXIT => return registers[usize::from(RESULT)],
                code => panic!("no instruction has the code {code:#x}"),
            };
            if jumps {
                at += usize::try_from(offset).unwrap();
            }
        }
    }

    #[test]
    fn the_program_allows_reading_and_writing_of_its_devices_alone() {
        let allowed = [
            device(DeviceKind::Character, 1, Some(3)),
            device(DeviceKind::Character, 136, None),
            device(DeviceKind::Block, 8, Some(0)),
        ];
        let program = instructions(&allowed);
        for (kind, access, major, minor, expected) in [
            (CHARACTER, READ, 1, 3, 1),
            (CHARACTER, READ | WRITE, 1, 3, 1),
            (CHARACTER, MAKE_NODE, 1, 3, 0),
            (CHARACTER, MAKE_NODE | READ, 1, 3, 0),
            (CHARACTER, READ, 1, 5, 0),
            (CHARACTER, READ, 2, 3, 0),
            (BLOCK, READ, 1, 3, 0),
            (CHARACTER, WRITE, 136, 0, 1),
            (CHARACTER, WRITE, 136, 1_048_575, 1),
            (CHARACTER, WRITE, 137, 0, 0),
            (BLOCK, WRITE, 8, 0, 1),
            (BLOCK, WRITE, 8, 1, 0),
            (CHARACTER, WRITE, 8, 0, 0),
            (CHARACTER, WRITE, 10, 229, 0),
        ] {
            let found = run(&program, [access << 16 | kind, major, minor]);
            assert_eq!(found, expected, "{kind} {access} {major}:{minor}");
        }
        assert_eq!(run(&instructions(&[]), [READ << 16 | CHARACTER, 1, 3]), 0);
    }

    #[test]
    fn the_kernel_takes_the_program_and_asks_it() {
        if !nix::unistd::Uid::effective().is_root() {
            eprintln!("not run: needs root for programs of the kernel");
            assert!(std::env::var_os("CI").is_none(), "run the tests as root");
            return;
        }
        let mut allowed: Vec<Device> = Device::of_every_container().collect();
        let loaded = load_program(&instructions(&allowed));
        if let Err(error) = &loaded
            && matches!(error, Errno::ENOSYS | Errno::EINVAL)
        {
            eprintln!("not run: this kernel has no programs for devices ({error})");
            return;
        }
        loaded.unwrap();
        // As for a machine with very many devices.
        allowed.extend((0..1_000).map(|minor| device(DeviceKind::Character, 300, Some(minor))));
        load_program(&instructions(&allowed)).unwrap();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let of_version_2 = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (path, kind) = (fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| path.to_owned())
        });
        let Some(root) = of_version_2 else {
            eprintln!("not tried in a group: no version 2 of control groups is mounted");
            return;
        };
        let group = Path::new(&root).join(format!("pumice-test-devices-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let attached = attach(&group, &Device::of_every_container().collect::<Vec<_>>());
        let folder = tempfile::tempdir().unwrap();
        let script = "mknod $2/before c 10 229 && echo made; echo $$ > $1/cgroup.procs; \
                      for path in /dev/null /dev/urandom /dev/ptmx $2/before; do \
                      (exec 3<> $path) 2> /dev/null && echo opened $path; done; \
                      mknod $2/after c 10 229 2> /dev/null && echo made; \
                      mknod $2/null c 1 3 2> /dev/null && echo made; echo end";
        let output = Command::new("sh").args(["-c", script, "sh"]).arg(&group).arg(folder.path()).output().unwrap();
        fs::remove_dir(&group).unwrap();
        attached.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected = ["made", "opened /dev/null", "opened /dev/urandom", "opened /dev/ptmx", "end"];
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{}", String::from_utf8_lossy(&output.stderr));
    }
}
