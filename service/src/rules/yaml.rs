//! The YAML of one file as a tree of nodes, each with its spot, and scalars as they are written.
//!
//! Three bounds hold for any text. The depth is at most [`MAX_DEPTH`], so a walk may recurse. An
//! alias of a node that is still open is an error, so a walk ends. All aliases make at most
//! [`MAX_COPIES`] nodes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::error::Spot;
use super::tree::MAX_LEVELS;

/// The most lists and maps inside each other.
const MAX_DEPTH: usize = 2 * MAX_LEVELS + 8;

/// The most nodes that all aliases of a file make.
const MAX_COPIES: usize = 100_000;

/// The most bytes of a line in which comments are looked for.
const LONGEST_LINE: usize = 4 << 10;

/// A node, and the spot of its first character.
#[derive(Clone, Debug)]
pub(crate) struct Node<'t> {
    pub(super) at: Spot,
    body: NodeBody<'t>,
}

#[derive(Clone, Debug)]
enum NodeBody<'t> {
    Here(Content<'t>),
    /// The content of an anchor. Each of its aliases has the same one.
    Anchored(Rc<Node<'t>>),
}

/// The content of a node.
#[derive(Clone, Debug)]
pub(crate) enum Content<'t> {
    /// Plain: neither in quotes nor tagged as a string, so it may stand for a number or a boolean.
    Scalar {
        text: Cow<'t, str>,
        plain: bool,
    },
    List(Vec<Node<'t>>),
    /// Pairs in the order of the file, with each scalar key at most once, and without merge keys.
    Map(Vec<(Node<'t>, Node<'t>)>),
}

impl<'t> Node<'t> {
    /// Returns a node that is not of a text. The depth is the caller's to bound.
    pub(crate) fn new(at: Spot, content: Content<'t>) -> Node<'t> {
        Node { at, body: NodeBody::Here(content) }
    }

    /// Returns the content, of the anchor if the node is an alias.
    pub(crate) fn kind(&self) -> &Content<'t> {
        match &self.body {
            NodeBody::Here(kind) => kind,
            NodeBody::Anchored(node) => node.kind(),
        }
    }

    /// Takes the items of a list out of a map. An alias is not a list here.
    pub(super) fn take_list(&mut self, name: &str) -> Vec<Node<'t>> {
        let NodeBody::Here(Content::Map(pairs)) = &mut self.body else { return Vec::new() };
        match pairs.iter_mut().find(|(key, _)| key.is(name)).map(|(_, value)| &mut value.body) {
            Some(NodeBody::Here(Content::List(items))) => std::mem::take(items),
            _ => Vec::new(),
        }
    }

    /// Returns whether the node is this text.
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self.kind(), Content::Scalar { text, .. } if text == name)
    }

    /// Returns whether the node is empty or one of the words for nothing.
    pub(crate) fn is_null(&self) -> bool {
        let null = |text: &str| matches!(text, "" | "~" | "null" | "Null" | "NULL");
        matches!(self.kind(), Content::Scalar { text, plain: true } if null(text))
    }
}

/// A text that was read: its first document, and the spot of a second one.
pub(crate) struct Document<'t> {
    pub(crate) root: Node<'t>,
    pub(super) second: Option<Spot>,
    /// The plain scalars behind which ` #` begins a comment without a space of its own.
    pub(super) cut: HashSet<Spot>,
}

/// The spot and the text of a mistake.
pub(crate) type Mistake = (Spot, String);

/// Reads the first document of a text.
pub(crate) fn read(text: &str) -> Result<Document<'_>, Mistake> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser::new_from_str(text);
    let mut reader =
        Reader { lines: LineReader { number: 0, line: "", rest: text.lines() }, ..Reader::default() };
    let mut ended = false;
    while let Some(event) = parser.next_event() {
        let (event, span) = match event {
            Ok(event) => event,
            // What stands behind the first document is not read.
            Err(_) if ended => break,
            Err(error) => return Err((spot(error.marker()), error.info().to_owned())),
        };
        let at = spot(&span.start);
        match event {
            Event::DocumentStart(_) if ended => return Ok(reader.document(Some(at))),
            Event::DocumentEnd => ended = true,
            Event::Scalar(scalar, style, anchor, tag) => {
                // The parser copies plain scalars. The memory of a large file is mostly theirs.
                let written = text.get(span.start.index()..).and_then(|rest| rest.get(..scalar.len()));
                let scalar = written.filter(|text| *text == scalar).map_or(scalar, Cow::Borrowed);
                if style == ScalarStyle::Plain && reader.lines.has_cut(at, &scalar) {
                    reader.cut.insert(at);
                }
                reader.take(Event::Scalar(scalar, style, anchor, tag), at)?;
            }
            event => reader.take(event, at)?,
        }
    }
    Ok(reader.document(None))
}

fn spot(marker: &Marker) -> Spot {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Spot { line: number(marker.line().max(1)), column: number(marker.col().saturating_add(1)) }
}

/// The nodes that are open, and the anchors that are complete.
#[derive(Default)]
struct Reader<'t> {
    open: Vec<Open<'t>>,
    root: Option<Node<'t>>,
    anchors: HashMap<usize, (Rc<Node<'t>>, Extent)>,
    copies: usize,
    lines: LineReader<'t>,
    cut: HashSet<Spot>,
}

/// The lines of the text, up to the one of the present event.
struct LineReader<'t> {
    number: u32,
    line: &'t str,
    rest: std::str::Lines<'t>,
}

impl Default for LineReader<'_> {
    fn default() -> Self {
        LineReader { number: 0, line: "", rest: "".lines() }
    }
}

impl LineReader<'_> {
    /// Returns whether a comment without a space of its own begins right behind a scalar.
    fn has_cut(&mut self, at: Spot, scalar: &str) -> bool {
        while self.number < at.line {
            let Some(line) = self.rest.next() else { return false };
            (self.number, self.line) = (self.number + 1, line);
        }
        // The spot of a column takes the time of its line.
        if self.line.len() > LONGEST_LINE || !self.line.contains(" #") {
            return false;
        }
        let begin = self.line.char_indices().nth((at.column - 1) as usize);
        let behind = begin.and_then(|(begin, _)| self.line[begin..].strip_prefix(scalar)?.strip_prefix(" #"));
        behind
            .is_some_and(|comment| comment.starts_with(|first: char| !first.is_whitespace() && first != '#'))
    }
}

/// A list or a map that has not ended.
struct Open<'t> {
    at: Spot,
    anchor: usize,
    extent: Extent,
    key: Option<Node<'t>>,
    kind: Content<'t>,
}

/// The nodes in a node with itself, and the lists and maps inside each other.
#[derive(Clone, Copy)]
struct Extent {
    nodes: usize,
    depth: usize,
}

const LEAF: Extent = Extent { nodes: 1, depth: 0 };

impl<'t> Reader<'t> {
    fn document(self, second: Option<Spot>) -> Document<'t> {
        let nothing = Content::Scalar { text: Cow::Borrowed(""), plain: true };
        let at = Spot { line: 1, column: 1 };
        let root = self.root.unwrap_or(Node { at, body: NodeBody::Here(nothing) });
        Document { root, second, cut: self.cut }
    }

    fn take(&mut self, event: Event<'t>, at: Spot) -> Result<(), Mistake> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = is_plain(style, tag.as_deref());
                let node = Node { at, body: NodeBody::Here(Content::Scalar { text, plain }) };
                self.end(node, anchor, LEAF)
            }
            Event::SequenceStart(anchor, _) => self.start(at, anchor, Content::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.start(at, anchor, Content::Map(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { at, anchor, extent, mut kind, .. }) = self.open.pop() else { return Ok(()) };
                if let Content::Map(pairs) = &mut kind {
                    complete(pairs)?;
                    // The spare slots of many small maps are most of the memory of a load.
                    pairs.shrink_to_fit();
                }
                let extent = Extent { nodes: extent.nodes + 1, depth: extent.depth + 1 };
                self.end(Node { at, body: NodeBody::Here(kind) }, anchor, extent)
            }
            Event::Alias(anchor) => self.alias(anchor, at),
            _ => Ok(()),
        }
    }

    fn start(&mut self, at: Spot, anchor: usize, kind: Content<'t>) -> Result<(), Mistake> {
        self.open.push(Open { at, anchor, extent: Extent { nodes: 0, depth: 0 }, key: None, kind });
        self.check_depth(at, 0)
    }

    fn alias(&mut self, anchor: usize, at: Spot) -> Result<(), Mistake> {
        let Some((node, extent)) = self.anchors.get(&anchor) else {
            return Err((at, "an alias of a node that it stands in".to_owned()));
        };
        let (node, extent) = (node.clone(), *extent);
        self.copies = self.copies.saturating_add(extent.nodes);
        if self.copies > MAX_COPIES {
            return Err((at, format!("aliases make more than {MAX_COPIES} nodes")));
        }
        self.check_depth(at, extent.depth)?;
        self.push(Node { at: node.at, body: NodeBody::Anchored(node) }, extent);
        Ok(())
    }

    fn check_depth(&self, at: Spot, more: usize) -> Result<(), Mistake> {
        if self.open.len() + more > MAX_DEPTH {
            return Err((at, format!("more than {MAX_DEPTH} lists and maps inside each other")));
        }
        Ok(())
    }

    /// Puts a complete node into the one around it, and keeps it for its aliases.
    fn end(&mut self, node: Node<'t>, anchor: usize, extent: Extent) -> Result<(), Mistake> {
        if anchor == 0 {
            self.push(node, extent);
        } else {
            let node = Rc::new(node);
            self.anchors.insert(anchor, (node.clone(), extent));
            self.push(Node { at: node.at, body: NodeBody::Anchored(node) }, extent);
        }
        Ok(())
    }

    fn push(&mut self, node: Node<'t>, extent: Extent) {
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(node);
            return;
        };
        open.extent.nodes = open.extent.nodes.saturating_add(extent.nodes);
        open.extent.depth = open.extent.depth.max(extent.depth);
        match (&mut open.kind, open.key.take()) {
            (Content::List(items), _) => items.push(node),
            (Content::Map(pairs), Some(key)) => pairs.push((key, node)),
            (_, None) => open.key = Some(node),
            (Content::Scalar { .. }, _) => (),
        }
    }
}

/// Returns whether a scalar may stand for a number: a tag of its own makes it a string.
fn is_plain(style: ScalarStyle, tag: Option<&Tag>) -> bool {
    match tag {
        None => style == ScalarStyle::Plain,
        Some(tag) => tag.is_yaml_core_schema() && tag.suffix != "str",
    }
}

/// Refuses a key that a map has twice, and puts the pairs of merge keys into the map.
fn complete<'t>(pairs: &mut Vec<(Node<'t>, Node<'t>)>) -> Result<(), Mistake> {
    let mut names = HashSet::with_capacity(pairs.len());
    for (key, _) in pairs.iter() {
        if let Content::Scalar { text, .. } = key.kind()
            && !names.insert(text.clone())
        {
            return Err((key.at, format!("the key '{text}' is in this map already")));
        }
    }
    let merges = |key: &Node<'_>| key.is("<<") && matches!(key.kind(), Content::Scalar { plain: true, .. });
    let Some(index) = pairs.iter().position(|(key, _)| merges(key)) else { return Ok(()) };
    let (key, merged) = pairs.remove(index);
    let maps = match merged.kind() {
        Content::List(maps) => maps.as_slice(),
        _ => std::slice::from_ref(&merged),
    };
    for map in maps {
        let Content::Map(more) = map.kind() else {
            return Err((key.at, "a merge key '<<' takes a map or a list of maps".to_owned()));
        };
        for (key, value) in more {
            match key.kind() {
                Content::Scalar { text, .. } if !names.insert(text.clone()) => (),
                _ => pairs.push((key.clone(), value.clone())),
            }
        }
    }
    Ok(())
}
