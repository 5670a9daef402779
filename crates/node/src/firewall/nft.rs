//! Messages of nf_tables: tables, sets, chains, and rules of a few expressions.
//!
//! Invariant: what messages say together the kernel does as one, or not at all. Addresses and ports are as packets have them, what the
//! kernel itself says of a packet is as this machine has numbers.

use pumice_linux::netlink::Message;

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const GET_TABLE: u16 = NEW_TABLE | 1;
const DELETE_TABLE: u16 = NEW_TABLE | 2;
const NEW_CHAIN: u16 = NEW_TABLE | 3;
const GET_CHAIN: u16 = NEW_TABLE | 4;
const DELETE_CHAIN: u16 = NEW_TABLE | 5;
const NEW_RULE: u16 = NEW_TABLE | 6;
const NEW_SET: u16 = NEW_TABLE | 9;
const DELETE_SET: u16 = NEW_TABLE | 11;
const NEW_ELEMENT: u16 = NEW_TABLE | 12;
const DELETE_ELEMENT: u16 = NEW_TABLE | 14;

/// `NFPROTO_INET`: both families of addresses.
const FAMILY: u8 = 1;
/// In a list each entry is an attribute of this kind.
const ENTRY: u16 = 1;
/// Attributes of what an expression or an element has for data.
const VALUE: u16 = 1;
const VERDICT: u16 = 2;
const SET_IS_MAP: u32 = 8;
/// What a set leads to where that is not a value.
const TYPE_VERDICT: u32 = 0xffff_ff00;
/// Elements in one message, whose length has 16 bits.
const ELEMENTS_MAX: usize = 256;

/// The register of four bytes that is used first; others follow.
pub(super) const A: u32 = 8;
pub(super) const B: u32 = 9;
pub(super) const C: u32 = 10;
const REGISTER_VERDICT: u32 = 0;

/// Types by which `nft` shows keys and values.
pub(super) mod kinds {
    pub const ADDRESS: u32 = 7;
    pub const PROTOCOL: u32 = 12;
    pub const PORT: u32 = 13;
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Drop,
    Accept,
    /// Goes on after the rule that led here.
    Return,
    Jump(String),
    Goto(String),
}

/// A part of a rule. The rule goes on as long as comparisons hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// What the kernel knows of a packet.
    Meta {
        key: u32,
        to: u32,
    },
    /// Bytes of its headers.
    Payload {
        header: u32,
        offset: u32,
        length: u32,
        to: u32,
    },
    /// Some bits of the register.
    Mask([u8; 4]),
    /// The register compared with a value.
    Compare {
        operator: u32,
        value: Vec<u8>,
    },
    /// Registers from this one on are in a set.
    In {
        set: String,
        from: u32,
    },
    /// What the set says that becomes of it, if it is in there.
    VerdictOf {
        set: String,
    },
    /// What connection tracking knows of it.
    Connection {
        key: u32,
    },
    /// What the routes say of an address of it.
    Route {
        result: u32,
        flags: u32,
    },
    Then(Verdict),
}

pub(super) const EQUAL: u32 = 0;
pub(super) const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;

/// Parts that are often used.
pub(super) mod parts {
    use super::*;

    const META_FAMILY: u32 = 15;
    const META_PROTOCOL: u32 = 16;
    const META_INPUT_GROUP: u32 = 21;
    const META_OUTPUT_GROUP: u32 = 22;
    const NETWORK_HEADER: u32 = 1;
    const TRANSPORT_HEADER: u32 = 2;
    const CONNECTION_STATE: u32 = 0;
    const CONNECTION_DIRECTION: u32 = 1;
    const FIB_INTERFACE: u32 = 1;
    const FIB_ADDRESS_TYPE: u32 = 3;
    const FIB_SOURCE: u32 = 1;
    const FIB_DESTINATION: u32 = 2;
    const FIB_INPUT: u32 = 8;
    const ESTABLISHED: u32 = 2;
    const RELATED: u32 = 4;

    fn compare(operator: u32, value: &[u8]) -> Part {
        Part::Compare { operator, value: value.to_vec() }
    }

    pub fn input_group(operator: u32, group: u32) -> Vec<Part> {
        vec![Part::Meta { key: META_INPUT_GROUP, to: A }, compare(operator, &group.to_ne_bytes())]
    }

    pub fn output_group(operator: u32, group: u32) -> Vec<Part> {
        vec![Part::Meta { key: META_OUTPUT_GROUP, to: A }, compare(operator, &group.to_ne_bytes())]
    }

    pub fn is_not_ipv4() -> Vec<Part> {
        vec![Part::Meta { key: META_FAMILY, to: A }, compare(NOT_EQUAL, &[libc::NFPROTO_IPV4 as u8])]
    }

    pub fn protocol(number: u8) -> Vec<Part> {
        vec![Part::Meta { key: META_PROTOCOL, to: A }, compare(EQUAL, &[number])]
    }

    pub fn protocol_to(to: u32) -> Part {
        Part::Meta { key: META_PROTOCOL, to }
    }

    pub fn source(to: u32) -> Part {
        Part::Payload { header: NETWORK_HEADER, offset: 12, length: 4, to }
    }

    pub fn destination(to: u32) -> Part {
        Part::Payload { header: NETWORK_HEADER, offset: 16, length: 4, to }
    }

    /// Of TCP, UDP and SCTP.
    pub fn port(to: u32) -> Part {
        Part::Payload { header: TRANSPORT_HEADER, offset: 2, length: 2, to }
    }

    pub fn is(value: &[u8]) -> Part {
        compare(EQUAL, value)
    }

    pub fn is_not(value: &[u8]) -> Part {
        compare(NOT_EQUAL, value)
    }

    pub fn at_least(value: &[u8]) -> Part {
        compare(AT_LEAST, value)
    }

    pub fn at_most(value: &[u8]) -> Part {
        compare(AT_MOST, value)
    }

    /// What is sent back on a connection that was let through.
    pub fn is_reply() -> Vec<Part> {
        let mut parts = state(ESTABLISHED, NOT_EQUAL);
        parts.extend([Part::Connection { key: CONNECTION_DIRECTION }, is(&[1])]);
        parts
    }

    /// Errors about a connection that was let through.
    pub fn is_related() -> Vec<Part> {
        state(RELATED, NOT_EQUAL)
    }

    /// Neither a part of a connection nor an error about one.
    pub fn is_new() -> Vec<Part> {
        state(ESTABLISHED | RELATED, EQUAL)
    }

    fn state(bits: u32, operator: u32) -> Vec<Part> {
        let none = 0_u32.to_ne_bytes();
        vec![Part::Connection { key: CONNECTION_STATE }, Part::Mask(bits.to_ne_bytes()), compare(operator, &none)]
    }

    /// Answers to its source would go another way than it came.
    pub fn is_forged() -> Vec<Part> {
        vec![Part::Route { result: FIB_INTERFACE, flags: FIB_SOURCE | FIB_INPUT }, is(&0_u32.to_ne_bytes())]
    }

    /// It goes to this host, or to many.
    pub fn is_not_unicast() -> Vec<Part> {
        let unicast = u32::from(libc::RTN_UNICAST).to_ne_bytes();
        vec![Part::Route { result: FIB_ADDRESS_TYPE, flags: FIB_DESTINATION }, is_not(&unicast)]
    }
}

/// A set, or a map where it leads to something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub key_kind: u32,
    pub key_bytes: u32,
    pub leads_to: Option<Leads>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Leads {
    Verdict,
}

/// An element's key and what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub key: Vec<u8>,
    pub leads_to: Option<Target>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Verdict(Verdict),
}

/// Where a chain hooks in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hook {
    pub number: u32,
    pub priority: i32,
}

/// Messages for one table, in the order in which they are done.
pub(super) struct Batch {
    table: String,
    messages: Vec<Message>,
    sets: u32,
}

impl Batch {
    pub(super) fn new(table: &str) -> Batch {
        Batch { table: table.to_owned(), messages: vec![begin_or_end(BATCH_BEGIN)], sets: 0 }
    }

    fn push(&mut self, kind: u16, flags: i32, fill: impl FnOnce(Message) -> Message) {
        let message = Message::new(kind, flags, &[FAMILY, 0, 0, 0]).text(1, &self.table);
        self.messages.push(fill(message));
    }

    pub(super) fn new_table(&mut self) {
        self.push(NEW_TABLE, libc::NLM_F_CREATE, |message| message);
    }

    pub(super) fn delete_table(&mut self) {
        self.push(DELETE_TABLE, 0, |message| message);
    }

    pub(super) fn new_chain(&mut self, name: &str, hook: Option<Hook>) {
        self.push(NEW_CHAIN, libc::NLM_F_CREATE, |message| {
            let message = message.text(3, name);
            match hook {
                Some(Hook { number, priority }) => message
                    .nest(4, |hook| hook.attribute(1, &be(number)).attribute(2, &priority.to_be_bytes()))
                    .text(7, "filter"),
                None => message,
            }
        });
    }

    /// Its rules go, too.
    pub(super) fn delete_chain(&mut self, name: &str) {
        self.push(DELETE_CHAIN, 0, |message| message.text(3, name));
    }

    pub(super) fn new_rule(&mut self, chain: &str, parts: &[Part]) {
        self.push(NEW_RULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, |message| {
            message.text(2, chain).nest(4, |list| parts.iter().fold(list, expression))
        });
    }

    pub(super) fn new_set(&mut self, name: &str, shape: Shape) {
        self.sets += 1;
        let id = self.sets;
        self.push(NEW_SET, libc::NLM_F_CREATE, |message| {
            let flags = if shape.leads_to.is_some() { SET_IS_MAP } else { 0 };
            let message = message.text(2, name).attribute(3, &be(flags));
            let message = message.attribute(4, &be(shape.key_kind)).attribute(5, &be(shape.key_bytes));
            let message = match shape.leads_to {
                Some(Leads::Verdict) => message.attribute(6, &be(TYPE_VERDICT)).attribute(7, &be(16)),
                None => message,
            };
            message.attribute(10, &be(id))
        });
    }

    pub(super) fn delete_set(&mut self, name: &str) {
        self.push(DELETE_SET, 0, |message| message.text(2, name));
    }

    pub(super) fn new_elements(&mut self, set: &str, entries: &[Entry]) {
        self.elements(NEW_ELEMENT, libc::NLM_F_CREATE, set, entries);
    }

    pub(super) fn delete_elements(&mut self, set: &str, entries: &[Entry]) {
        self.elements(DELETE_ELEMENT, 0, set, entries);
    }

    fn elements(&mut self, kind: u16, flags: i32, set: &str, entries: &[Entry]) {
        for entries in entries.chunks(ELEMENTS_MAX) {
            self.push(kind, flags, |message| {
                message.text(2, set).nest(3, |list| {
                    entries.iter().fold(list, |list, entry| list.nest(ENTRY, |item| element(item, entry)))
                })
            });
        }
    }

    /// All of it; the kernel answers once, when it is done or when a part of it can't be.
    pub(super) fn finish(mut self) -> Vec<Message> {
        if let Some(last) = self.messages.last_mut() {
            last.acknowledge();
        }
        self.messages.push(begin_or_end(BATCH_END));
        self.messages
    }
}

/// Asks for the chains of all tables.
pub(super) fn get_chains() -> Message {
    Message::new(GET_CHAIN, libc::NLM_F_DUMP, &[libc::AF_UNSPEC as u8, 0, 0, 0])
}

/// Asks for a table.
pub(super) fn get_table(name: &str) -> Message {
    Message::new(GET_TABLE, 0, &[FAMILY, 0, 0, 0]).text(1, name)
}

fn begin_or_end(kind: u16) -> Message {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    Message::new(kind, 0, &[libc::AF_UNSPEC as u8, 0, high, low])
}

fn be(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn element(item: Message, entry: &Entry) -> Message {
    let item = item.nest(1, |key| key.attribute(VALUE, &entry.key));
    match &entry.leads_to {
        Some(Target::Verdict(target)) => item.nest(2, |data| verdict(data, target)),
        None => item,
    }
}

fn verdict(data: Message, verdict: &Verdict) -> Message {
    let (code, chain) = match verdict {
        Verdict::Drop => (0, None),
        Verdict::Accept => (1, None),
        Verdict::Return => (-5, None),
        Verdict::Jump(chain) => (-3, Some(chain)),
        Verdict::Goto(chain) => (-4, Some(chain)),
    };
    data.nest(VERDICT, |data| {
        let data = data.attribute(1, &i32::to_be_bytes(code));
        match chain {
            Some(chain) => data.text(2, chain),
            None => data,
        }
    })
}

fn expression(list: Message, part: &Part) -> Message {
    let named =
        |name: &str, data: &dyn Fn(Message) -> Message| list.nest(ENTRY, |item| item.text(1, name).nest(2, data));
    match part {
        Part::Meta { key, to } => named("meta", &|data| data.attribute(1, &be(*to)).attribute(2, &be(*key))),
        Part::Payload { header, offset, length, to } => named("payload", &|data| {
            let data = data.attribute(1, &be(*to)).attribute(2, &be(*header));
            data.attribute(3, &be(*offset)).attribute(4, &be(*length))
        }),
        Part::Mask(mask) => named("bitwise", &|data| {
            let data = data.attribute(1, &be(A)).attribute(2, &be(A)).attribute(3, &be(4));
            data.nest(4, |value| value.attribute(VALUE, mask)).nest(5, |value| value.attribute(VALUE, &[0; 4]))
        }),
        Part::Compare { operator, value } => named("cmp", &|data| {
            let data = data.attribute(1, &be(A)).attribute(2, &be(*operator));
            data.nest(3, |data| data.attribute(VALUE, value))
        }),
        Part::In { set, from } => named("lookup", &|data| data.text(1, set).attribute(2, &be(*from))),
        Part::VerdictOf { set } => {
            named("lookup", &|data| data.text(1, set).attribute(2, &be(A)).attribute(3, &be(REGISTER_VERDICT)))
        }
        Part::Connection { key } => named("ct", &|data| data.attribute(1, &be(A)).attribute(2, &be(*key))),
        Part::Route { result, flags } => {
            named("fib", &|data| data.attribute(1, &be(A)).attribute(2, &be(*result)).attribute(3, &be(*flags)))
        }
        Part::Then(target) => {
            named("immediate", &|data| data.attribute(1, &be(REGISTER_VERDICT)).nest(2, |data| verdict(data, target)))
        }
    }
}
