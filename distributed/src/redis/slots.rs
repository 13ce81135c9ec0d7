//! The slots of a cluster: the slot of a key, and the master of each slot.

use redis::Value;

/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The address of a node.
pub(crate) type Address = (String, u16);

/// Returns the slot of a key: a digest of its first part in braces, or of the whole key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % SLOTS
}

/// Returns the first part of a key in braces, unless it is empty.
pub(crate) fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = key.get(open + 1..)?;
    rest.get(..rest.iter().position(|&byte| byte == b'}')?).filter(|tag| !tag.is_empty())
}

/// Returns a tag whose slot is this one: the first number that has it.
pub(crate) fn tag_of(slot: u16) -> String {
    let tags = (0_u32..).map(|number| number.to_string());
    tags.into_iter().find(|tag| slot_of(tag.as_bytes()) == slot).expect("some number has each slot")
}

/// CRC-16 of XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        let shift = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        (0..8).fold(crc ^ (u16::from(byte) << 8), shift)
    })
}

/// The slots from `first` to `last`, and their master. An empty host is that of the node that was
/// asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) master: Address,
}

/// Reads the answer of `CLUSTER SLOTS`, a list of `[first, last, [host, port, ...], replica...]`.
pub(crate) fn read_slots(reply: &Value) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(read_range).collect()
}

fn read_range(range: &Value) -> Option<Range> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?.to_owned(),
        Value::SimpleString(host) => host.clone(),
        Value::Nil => String::new(),
        _ => return None,
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let master = (host, u16::try_from(*port).ok()?);
    (first <= last && last < SLOTS).then_some(Range { first, last, master })
}

/// Reads the address of a `MOVED` or an `ASK`, whose host may be empty.
pub(crate) fn read_address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_is_that_of_the_tag() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"{user}.a"), slot_of(b"x{user}y{other}"));
        assert_eq!(slot_of(b"user"), slot_of(b"{user}"));
        // Empty tags and tags without an end are none.
        assert_ne!(slot_of(b"{}a"), slot_of(b"{}b"));
        assert_ne!(slot_of(b"{a"), slot_of(b"a"));
        assert_eq!(slot_of(b""), 0);
        for slot in [0, 1, 5_461, SLOTS - 1] {
            assert_eq!(slot_of(format!("tollgate::probe{{{}}}", tag_of(slot)).as_bytes()), slot);
        }
    }
}
