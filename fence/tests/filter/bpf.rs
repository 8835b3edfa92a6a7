//! The programs for an architecture, and a machine of our own that runs them
//! as the kernel does, for calls that this one cannot make.

use std::io::Read;

use bailey_model::BoxClass;
use libseccomp::{ScmpArch, ScmpFilterContext};

use crate::compile;
use crate::table::For;

/// `struct seccomp_data` of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) entry: u32,
    pub(crate) number: u32,
    pub(crate) arguments: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        let [low, high] = match offset {
            0 => return self.number,
            4 => return self.entry,
            16.. => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                let bytes = argument.to_le_bytes();
                let (low, high) = bytes.split_at(4);
                [low, high].map(|half| u32::from_le_bytes(half.try_into().unwrap()))
            }
            _ => panic!("a load of the instruction pointer"),
        };
        if offset.is_multiple_of(8) { low } else { high }
    }
}

/// What a program says to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    Allow,
    Errno(i32),
    Kill,
}

/// A program, as exported.
#[derive(Debug)]
pub(crate) struct Program(pub(crate) Vec<u8>);

impl Program {
    pub(crate) fn of(filter: &ScmpFilterContext) -> Self {
        // It is smaller than a pipe holds.
        let (mut read, write) = std::io::pipe().unwrap();
        filter.export_bpf(&write).unwrap();
        drop(write);
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).unwrap();
        Self(bytes)
    }

    pub(crate) fn run(&self, call: &Call) -> Says {
        let (instructions, rest) = self.0.as_chunks::<8>();
        assert!(rest.is_empty());
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let [a, b, yes, no, k @ ..] = instructions[at];
            let k = u32::from_le_bytes(k);
            at += 1;
            let branch = |holds| usize::from(if holds { yes } else { no });
            match u16::from_le_bytes([a, b]) {
                0x20 => accumulator = call.word(k),
                0x54 => accumulator &= k,
                0x05 => at += k as usize,
                0x15 => at += branch(accumulator == k),
                0x25 => at += branch(accumulator > k),
                0x35 => at += branch(accumulator >= k),
                0x45 => at += branch(accumulator & k != 0),
                0x06 => return said(k),
                other => panic!("an instruction that libseccomp never used: {other:#x}"),
            }
        }
    }
}

fn said(value: u32) -> Says {
    match (value & 0xffff_0000, value & 0xffff) {
        (0x7fff_0000, _) => Says::Allow,
        (0x0005_0000, errno) => Says::Errno(i32::try_from(errno).unwrap()),
        (0x8000_0000, _) => Says::Kill,
        _ => panic!("an action that the table does not have: {value:#x}"),
    }
}

/// The kinds of box there are programs for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) class: BoxClass,
    /// The program beside the class's.
    pub(crate) beside: Option<For>,
}

pub(crate) const KINDS: [Kind; 6] = [
    Kind::new(BoxClass::Plain, None),
    Kind::new(BoxClass::Plain, Some(For::NoNetwork)),
    Kind::new(BoxClass::Plain, Some(For::NoNamespaces)),
    Kind::new(BoxClass::Browser, None),
    Kind::new(BoxClass::Browser, Some(For::NoNetwork)),
    Kind::new(BoxClass::Browser, Some(For::NoNamespaces)),
];

impl Kind {
    pub(crate) const fn new(class: BoxClass, beside: Option<For>) -> Self {
        Self { class, beside }
    }

    pub(crate) fn has(self, row: For) -> bool {
        match row {
            For::Every => true,
            For::Plain => self.class == BoxClass::Plain,
            For::NoNetwork | For::NoNamespaces => self.beside == Some(row),
        }
    }
}

/// Both architectures, with the number by which the kernel names their entry.
pub(crate) const ARCHES: [(ScmpArch, &str, u32); 2] = [
    (ScmpArch::X8664, "x86-64", 0xc000_003e),
    (ScmpArch::Aarch64, "aarch64", 0xc000_00b7),
];

/// The programs of a box, in the order of their loading.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) programs: Vec<Program>,
    entry: u32,
}

impl Stack {
    pub(crate) fn new(arch: ScmpArch, kind: Kind) -> Self {
        let of_class: &[For] = match kind.class {
            BoxClass::Plain => &[For::Every, For::Plain],
            BoxClass::Browser => &[For::Every],
        };
        let mut filters = vec![
            compile::known(arch).unwrap(),
            compile::refused(arch, of_class).unwrap(),
        ];
        if let Some(beside) = kind.beside {
            filters.push(compile::refused(arch, &[beside]).unwrap());
        }
        let (_, _, entry) = ARCHES.into_iter().find(|(it, _, _)| *it == arch).unwrap();
        Self {
            programs: filters.iter().map(Program::of).collect(),
            entry,
        }
    }

    /// By the architecture's own entry.
    pub(crate) fn says(&self, number: i32, arguments: [u64; 6]) -> Says {
        self.answers(&Call {
            entry: self.entry,
            number: number.cast_unsigned(),
            arguments,
        })
    }

    /// As the kernel does: the strictest answer holds, of equal ones that of
    /// the program that was loaded last.
    pub(crate) fn answers(&self, call: &Call) -> Says {
        let strictness = |says: &Says| match says {
            Says::Allow => 0,
            Says::Errno(_) => 1,
            Says::Kill => 2,
        };
        let each = self.programs.iter().map(|program| program.run(call));
        each.max_by_key(strictness).unwrap()
    }
}
