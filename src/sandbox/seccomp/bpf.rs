//! A small assembler for the filter: straight code and two-way branches, no labels. Every piece ends
//! with an answer on each of its ways, so pieces can be put behind each other.

/// Where `struct seccomp_data` has the call's number.
pub(super) const NUMBER: u32 = 0;

/// Where it has the architecture's token.
pub(super) const ARCHITECTURE: u32 = 4;

/// Where it has the low 32 bits of an argument, counted from zero. All arguments that are looked at
/// are 32 bits wide for the kernel, which drops the others; both architectures are little-endian.
pub(super) const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// `BPF_LD | BPF_W | BPF_ABS`.
pub(super) const LOAD: u16 = 0x20;
/// `BPF_JMP | BPF_JA`.
pub(super) const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
pub(super) const EQUALS: u16 = 0x15;
/// `BPF_JMP | BPF_JGE | BPF_K`.
pub(super) const AT_LEAST: u16 = 0x35;
/// `BPF_JMP | BPF_JSET | BPF_K`.
pub(super) const ANY_BIT: u16 = 0x45;
/// `BPF_RET | BPF_K`.
pub(super) const RETURN: u16 = 0x06;

/// One instruction, `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    /// How many instructions are skipped when a test holds.
    pub(super) yes: u8,
    /// How many when it does not.
    pub(super) no: u8,
    pub(super) value: u32,
}

impl Instruction {
    /// As the kernel reads it.
    pub(super) fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        let parts = self.code.to_ne_bytes().into_iter().chain([self.yes, self.no]);
        for (byte, value) in bytes.iter_mut().zip(parts.chain(self.value.to_ne_bytes())) {
            *byte = value;
        }
        bytes
    }
}

/// What is asked about the loaded word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Equals(u32),
    AtLeast(u32),
    AnyBit(u32),
}

const fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, yes: 0, no: 0, value }
}

/// Loads a word of `struct seccomp_data`.
pub(super) const fn load(offset: u32) -> Instruction {
    plain(LOAD, offset)
}

/// Ends the program with an answer to the kernel.
pub(super) const fn answer(value: u32) -> Instruction {
    plain(RETURN, value)
}

/// Goes on with `yes` when the loaded word passes the test, with `no` otherwise.
pub(super) fn branch(test: Test, yes: Vec<Instruction>, no: Vec<Instruction>) -> Vec<Instruction> {
    let (code, value) = match test {
        Test::Equals(value) => (EQUALS, value),
        Test::AtLeast(value) => (AT_LEAST, value),
        Test::AnyBit(value) => (ANY_BIT, value),
    };
    let mut all = Vec::with_capacity(yes.len() + no.len() + 2);
    match u8::try_from(yes.len()) {
        Ok(length) => all.push(Instruction { code, yes: 0, no: length, value }),
        // A test skips 255 instructions at most, a jump any number of them.
        Err(_) => all.extend([
            Instruction { code, yes: 1, no: 0, value },
            plain(JUMP, u32::try_from(yes.len()).unwrap_or(u32::MAX)),
        ]),
    }
    all.extend(yes);
    all.extend(no);
    all
}
