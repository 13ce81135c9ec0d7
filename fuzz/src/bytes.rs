//! Numbers from bytes. After the last byte all are 0.

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns a number below `2^most`, as likely small as large: a byte chooses its bits.
    pub(crate) fn spread(&mut self, most: u32) -> u64 {
        let bits = u32::from(self.byte()) % (most + 1);
        let number = (0..bits.div_ceil(8)).fold(0, |number, _| number << 8 | u64::from(self.byte()));
        if bits == 0 { 0 } else { number & (u64::MAX >> (64 - bits)) }
    }

    /// Returns the unread bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}
