//! Messages of HTTP/1.1, by a parser that accepts one way to write each.

/// A request or a response. Each byte is one character of its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The first line.
    pub start: String,
    /// The status of a response, or 0 for a request.
    pub status: u16,
    /// Names, in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The whole body, or nothing before it is read.
    pub body: String,
}

impl Message {
    /// Returns the values of all headers of a name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|header| header.0 == name).map(|header| &*header.1).collect()
    }

    /// Returns the value of the first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Tells whether there is one header of a name, and it has this value.
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.all(name) == [value]
    }
}

/// Returns the bytes of a text in which each character is one byte.
pub fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|char| u8::try_from(char).expect("a character above U+00FF is no byte")).collect()
}

/// Returns the text in which each byte is one character.
pub fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn status(start: &str) -> u16 {
    let digits = start.strip_prefix("HTTP/1.1 ").or(start.strip_prefix("HTTP/1.0 "));
    digits.and_then(|digits| digits.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// The length of a body, by its head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Length {
    Known(usize),
    Chunked,
    /// The head has no length.
    Untold,
}

/// Parses the head of the first message in these bytes. Returns the message without its body, and
/// the length of the head.
///
/// The result is `None` if more bytes are to come.
///
/// # Errors
///
/// The bytes are no head.
pub fn head(bytes: &[u8]) -> Result<Option<(Message, usize)>, String> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = text(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let start = lines.next().unwrap_or_default().to_owned();
    let mut message = Message { status: status(&start), start, headers: Vec::new(), body: String::new() };
    if message.start.chars().any(|char| char.is_ascii_control()) {
        return Err(format!("a control character in {:?}", message.start));
    }
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap_or((line, "\0"));
        if name.is_empty() || !name.chars().all(is_token) {
            return Err(format!("no header name in {line:?}"));
        }
        if value.chars().any(|char| char.is_ascii_control() && char != '\t') {
            return Err(format!("a control character in {line:?}"));
        }
        message.headers.push((name.to_lowercase(), value.to_owned()));
    }
    Ok(Some((message, end + 4)))
}

/// Returns the length of the body of a message with this head. An error is a head with more than
/// one length.
pub(super) fn length(head: &Message) -> Result<Length, String> {
    // Some servers take an underscore for a hyphen.
    let of_length = |name: &str| ["content-length", "transfer-encoding"].contains(&&*name.replace('_', "-"));
    let told: Vec<_> = head.headers.iter().filter(|header| of_length(&header.0)).collect();
    let [(name, value)] = told[..] else {
        return if told.is_empty() {
            Ok(Length::Untold)
        } else {
            Err(format!("more than one length: {told:?}"))
        };
    };
    match (&**name, &**value) {
        ("transfer-encoding", "chunked") => return Ok(Length::Chunked),
        // The value has digits only, and no leading zero: that is octal to some parsers.
        ("content-length", digits)
            if digits.parse().is_ok_and(|length: usize| length.to_string() == *digits) => {}
        _ => return Err(format!("no length: {name}: {value:?}")),
    }
    value.parse().map(Length::Known).map_err(|_| format!("no length: {value:?}"))
}

/// Parses the first request in these bytes. Returns the request and its length, or `None` if more
/// bytes are to come.
///
/// # Errors
///
/// The bytes are no request.
pub fn request(bytes: &[u8]) -> Result<Option<(Message, usize)>, String> {
    let Some((mut message, head)) = head(bytes)? else { return Ok(None) };
    let body = match length(&message)? {
        Length::Untold => Some((String::new(), 0)),
        Length::Known(length) => bytes[head..].get(..length).map(|body| (text(body), length)),
        Length::Chunked => chunks(&bytes[head..])?,
    };
    let Some((body, length)) = body else { return Ok(None) };
    message.body = body;
    Ok(Some((message, head + length)))
}

/// Parses a chunked body without extensions and trailers. Returns its data, and its length in
/// bytes.
pub(super) fn chunks(bytes: &[u8]) -> Result<Option<(String, usize)>, String> {
    let mut data = String::new();
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else { return Ok(None) };
        let digits = text(&rest[..line]);
        let is_hex = !digits.is_empty() && digits.chars().all(|char| char.is_ascii_hexdigit());
        let size = usize::from_str_radix(&digits, 16).ok().filter(|_| is_hex);
        let Some(size) = size else { return Err(format!("no size of a chunk: {digits:?}")) };
        let Some(chunk) = rest.get(line + 2..line + 2 + size + 2) else { return Ok(None) };
        let Some(chunk) = chunk.strip_suffix(b"\r\n") else {
            return Err(format!("no end of a chunk: {:?}", text(chunk)));
        };
        data += &text(chunk);
        at += line + 2 + size + 2;
        if size == 0 {
            return Ok(Some((data, at)));
        }
    }
}

fn is_token(char: char) -> bool {
    char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char)
}
