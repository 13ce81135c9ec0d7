//! The load: files to rules, or all errors of all files at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::amount::{self, RATE_LIMIT, Texts};
use super::descent::{CountedBy, Descent, LevelStep};
use super::error::{FileSpot, Finding, MOST_BYTES, Spot, beginning, bounded, keep};
use super::fields::{Fields, Report, Section};
use super::metadata;
use super::shared_entry::Prefixes;
use super::tree::{Amount, Domain, Level, MAX_LEVELS, Rule, RuleLimit, Rules};
use super::warnings;
use super::yaml::{self, Node};

const ROOT: Section = Section { name: "the document", fields: &["domain", "descriptors"] };
const DESCRIPTOR: Section = Section {
    name: "a descriptor",
    fields: &[
        "key",
        "value",
        "descriptors",
        "rate_limit",
        "shadow_mode",
        "quota_mode",
        "detailed_metric",
        "value_to_metric",
        "share_threshold",
        "ipv4_prefix",
        "ipv6_prefix",
        "metadata",
    ],
};
/// The settings of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Files of one domain are merged, and no error.
    pub merge_domains: bool,
}

/// The outcome of a load: the rules hold if there is no error.
pub struct Loaded {
    pub rules: Rules,
    pub errors: Vec<Finding>,
    pub warnings: Vec<Finding>,
    /// What is right here, and would not be for envoyproxy/ratelimit.
    pub notes: Vec<Finding>,
}

/// The most bytes of the names of all limits. Each has the keys and the values of all its levels,
/// so a short text may make long ones.
const MAX_NAME_BYTES: usize = 64 << 20;

/// The most errors, and the most warnings, that a line of the log or an answer has.
pub const MOST_TOLD: usize = 20;

/// Returns the rules of files, each a path and its text, or all errors of all files.
pub fn load(files: &[(String, String)], options: LoadOptions) -> Result<Rules, Vec<Finding>> {
    let Loaded { rules, errors, .. } = read(files, options);
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// Returns the rules of files with all errors and warnings, each in the order of the files.
pub fn load_all(files: &[(String, String)], options: LoadOptions) -> Loaded {
    with_doubts(read(files, options), &order_of(files))
}

/// Returns the same of documents that are in no file, each with its name.
pub(crate) fn load_documents<'t>(
    documents: impl Iterator<Item = (&'t str, Node<'t>)>,
    options: LoadOptions,
) -> Loaded {
    let mut loader = Loader { options, ..Loader::default() };
    let mut order = HashMap::new();
    for (name, root) in documents {
        order.insert(name, order.len());
        loader.report.file = name.into();
        loader.document(root);
    }
    with_doubts(loader.loaded(&order), &order)
}

/// Adds the warnings of rules without an error.
fn with_doubts(mut loaded: Loaded, order: &HashMap<&str, usize>) -> Loaded {
    if loaded.errors.is_empty() {
        warnings::of(&loaded.rules, &mut loaded.warnings);
        sort(&mut loaded.warnings, order);
    }
    loaded
}

fn read(files: &[(String, String)], options: LoadOptions) -> Loaded {
    let mut loader = Loader { options, ..Loader::default() };
    for (path, text) in files {
        loader.report.file = path.as_str().into();
        loader.file(text);
    }
    loader.loaded(&order_of(files))
}

/// Returns the place of each file among all.
fn order_of(files: &[(String, String)]) -> HashMap<&str, usize> {
    files.iter().enumerate().map(|(index, (path, _))| (&**path, index)).collect()
}

/// Sorts findings by their spots. A node with aliases is read at each of them, and told once.
fn sort(findings: &mut Vec<Finding>, order: &HashMap<&str, usize>) {
    findings
        .sort_by_cached_key(|found| (order.get(&*found.at.file).copied(), found.at.line, found.at.column));
    findings.dedup();
}

#[derive(Default)]
struct Loader {
    options: LoadOptions,
    rules: Rules,
    report: Report,
    descent: Descent,
    texts: Texts,
    /// The bytes of the names of all limits.
    name_bytes: usize,
}

impl Loader {
    /// Returns the rules, and all findings in order.
    fn loaded(self, order: &HashMap<&str, usize>) -> Loaded {
        let Loader { rules, report: Report { mut errors, mut warnings, mut notes, .. }, .. } = self;
        [&mut errors, &mut warnings, &mut notes].into_iter().for_each(|findings| sort(findings, order));
        Loaded { rules, errors, warnings, notes }
    }

    fn file(&mut self, text: &str) {
        let document = match yaml::read(text) {
            Ok(document) => document,
            Err((at, what)) => return self.report.error(at, format!("error loading config file: {what}")),
        };
        if let Some(at) = document.second {
            self.report.warn(at, "a second document in a file is not read".to_owned());
        }
        self.report.cut = document.cut;
        self.document(document.root);
    }

    fn document(&mut self, mut root: Node<'_>) {
        // Each of them is dropped once it is read, so rules take the memory of nodes.
        let own = root.take_list("descriptors");
        let Some(root) = Fields::of(&root, &ROOT, &mut self.report) else { return };
        let name = root.text("domain", &mut self.report);
        if name.is_empty() {
            let what = "config file cannot have empty domain; its first line is domain: NAME".to_owned();
            self.report.error(root.at, what);
        }
        let fresh = Domain { at: self.report.file_spot(root.spot("domain")), level: Level::default() };
        let mut domain = match self.rules.domains.remove(name) {
            None => fresh,
            Some(first) if self.options.merge_domains => first,
            Some(first) => {
                let remedy = "MERGE_DOMAIN_CONFIG=true merges both";
                let what = format!(
                    "duplicate domain '{name}' in config file; the first is at {}, {remedy}",
                    first.at
                );
                self.report.error(root.spot("domain"), what);
                Domain { at: first.at, ..fresh }
            }
        };
        self.descent = Descent { text: name.to_owned(), steps: Vec::new() };
        for node in own {
            self.descriptor(&node, &mut domain.level);
        }
        self.descriptors(&root, &mut domain.level);
        self.rules.domains.insert(name.into(), domain);
    }

    /// Reads the descriptors of a level, and makes the index of its wildcards.
    fn descriptors(&mut self, fields: &Fields<'_, '_>, level: &mut Level) {
        for node in fields.list("descriptors", &mut self.report) {
            self.descriptor(node, level);
        }
        let name = beginning(&self.descent.text, MOST_BYTES);
        let by_key = level.keys.iter_mut().map(|(key, values)| (format!("{key}_"), &mut values.by_pattern));
        for (key, rules) in by_key.chain([(String::new(), &mut level.by_pattern)]) {
            for [again, first] in rules.index() {
                let name = format!("{name}.{key}{}", again.pattern.text());
                duplicate(&name, &again.rule.at, &first.rule.at, &mut self.report);
            }
        }
    }

    fn descriptor(&mut self, node: &Node<'_>, level: &mut Level) {
        let Loader { descent, report, .. } = self;
        if !report.check_map(node) {
            return;
        }
        if descent.steps.len() == MAX_LEVELS {
            return report
                .error(node.at, format!("config error, more than {MAX_LEVELS} levels of descriptors"));
        }
        let Some(fields) = Fields::of(node, &DESCRIPTOR, report) else { return };
        let (key, value) = (fields.text("key", report), fields.text("value", report));
        if key.is_empty() {
            report.error(node.at, "descriptor has empty key; it needs key: NAME".to_owned());
        }
        let shares = fields.flag("share_threshold", report);
        let by_value = fields.flag("value_to_metric", report);
        let mark = descent.text.len();
        let networks = prefixes(&fields, !value.is_empty() && !value.contains('*'), shares, report);
        let counted = match networks {
            _ if shares => CountedBy::Wildcard,
            Some(prefixes) => CountedBy::Network(prefixes),
            None => CountedBy::Entry,
        };
        descent.push(key, value, by_value, counted);
        if shares && !key.contains('*') && !value.contains('*') {
            let what = "share_threshold can only be used with wildcard values, those with a '*'".to_owned();
            report.error(fields.spot("share_threshold"), what);
        }
        let limit = self.limit(&fields);
        let mut below = Level::default();
        self.descriptors(&fields, &mut below);
        let below = (below.rules > 0).then(|| Box::new(below));
        let rule = Rule { at: self.report.file_spot(node.at), limit, below };
        if let Some([again, first]) = level.insert(key, value, rule) {
            duplicate(&self.descent.text, &again, &first, &mut self.report);
        }
        self.descent.text.truncate(mark);
        self.descent.steps.pop();
    }

    /// Reads `rate_limit` and the fields of its descriptor.
    fn limit(&mut self, descriptor: &Fields<'_, '_>) -> Option<Arc<RuleLimit>> {
        let Loader { report, .. } = self;
        let [shadow, quota, detailed] =
            ["shadow_mode", "quota_mode", "detailed_metric"].map(|name| descriptor.flag(name, report));
        let metadata = descriptor.get("metadata").and_then(|node| {
            let map = metadata::of_map(node);
            if map.is_none() {
                report.error(node.at, "error loading config file: 'metadata' is a map".to_owned());
            }
            map
        });
        let node = descriptor.get("rate_limit");
        self.warn_of_fields(descriptor, node.is_some(), detailed);
        let report = &mut self.report;
        let fields = Fields::of(node?, &RATE_LIMIT, report)?;
        let name = fields.text("name", report);
        let replaces = amount::replaced_names(&fields, name, report);
        let amounts = amount::amounts(&fields, &mut self.texts, report)?;
        let charged_after = amount::charged_after(&fields, &amounts, report);
        let had_room = self.name_bytes <= MAX_NAME_BYTES;
        self.name_bytes += amounts.len() * self.descent.name_bytes();
        if self.name_bytes > MAX_NAME_BYTES {
            if had_room {
                let what = format!("the names of the limits so far are longer than {MAX_NAME_BYTES} bytes");
                report.error(descriptor.at, what);
            }
            return None;
        }
        let is_list = amounts.len() > 1;
        let first = self.rules.limits.len();
        let one = |(place, (amount, at)): (usize, (Amount, Spot))| {
            let at = if is_list { at } else { descriptor.at };
            Some(RuleLimit {
                statistics: self.descent.statistics(detailed, is_list.then(|| amount.name())),
                amount,
                more: Box::default(),
                place: u32::try_from(place).ok()?,
                charged_after,
                name: (!name.is_empty()).then(|| name.into()),
                replaces: Box::default(),
                shadow,
                quota,
                fixed: self.descent.steps.iter().all(LevelStep::is_fixed),
                shared: self.descent.shared(),
                metadata: None,
                at: self.report.file_spot(at),
                id: u32::try_from(first + place).ok()?,
            })
        };
        let mut limits = amounts.into_iter().enumerate().map(one).collect::<Option<Vec<_>>>()?.into_iter();
        let limit = limits.next()?;
        let limit = Arc::new(RuleLimit { more: limits.map(Arc::new).collect(), replaces, metadata, ..limit });
        self.rules.limits.push(limit.clone());
        self.rules.limits.extend(limit.more.iter().cloned());
        Some(limit)
    }

    /// Warns of fields without a limit, and of one that makes a name for each value.
    fn warn_of_fields(&mut self, descriptor: &Fields<'_, '_>, limited: bool, detailed: bool) {
        if limited && detailed && !self.descent.steps.iter().all(LevelStep::is_fixed) {
            let what = "'detailed_metric' makes statistics for each value: at most 10000, then 'other'";
            self.report.warn(descriptor.spot("detailed_metric"), what.to_owned());
        }
        let of_limits = ["shadow_mode", "quota_mode", "detailed_metric", "metadata"];
        for name in of_limits.into_iter().filter(|name| !limited && descriptor.get(name).is_some()) {
            self.report.warn(descriptor.spot(name), format!("'{name}' has no effect without 'rate_limit'"));
        }
    }
}

/// Reads the lengths of the networks by which a level counts addresses. A level of one value, or
/// with one count of all values, has none.
fn prefixes(
    fields: &Fields<'_, '_>,
    has_one_value: bool,
    shares: bool,
    report: &mut Report,
) -> Option<Prefixes> {
    let mut number = |name, most: u8| {
        let number = fields.number(name, 0..=most.into(), report)?;
        let note = format!("'{name}' is of tollgate: envoyproxy/ratelimit refuses the file");
        report.note(fields.spot(name), note);
        let why = match (has_one_value, shares) {
            (true, _) => "beside a 'value' without a star",
            (_, true) => "beside 'share_threshold'",
            _ => return u8::try_from(number).ok(),
        };
        report.warn(fields.spot(name), format!("'{name}' has no effect {why}"));
        None
    };
    let Prefixes { v4, v6 } = Prefixes::WHOLE;
    let (of_v4, of_v6) = (number("ipv4_prefix", v4), number("ipv6_prefix", v6));
    let any = of_v4.or(of_v6).is_some();
    any.then(|| Prefixes { v4: of_v4.unwrap_or(v4), v6: of_v6.unwrap_or(v6) })
}

/// Adds the error of a rule that has the key and the value of another one.
fn duplicate(name: &str, again: &FileSpot, first: &FileSpot, report: &mut Report) {
    let name = bounded(name, MOST_BYTES / 2);
    let what = format!("duplicate descriptor composite key '{name}'; the first is at {first}");
    keep(&mut report.errors, again.clone(), &what);
}

impl Level {
    /// Inserts a rule. Returns its index and that of the rule that has its key and value, if there
    /// is one and they have no star.
    fn insert(&mut self, key: &str, value: &str, rule: Rule) -> Option<[FileSpot; 2]> {
        let order = self.rules;
        self.rules += 1;
        if key.contains('*') {
            let text = if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") };
            self.by_pattern.push(order, &text, rule);
            return None;
        }
        let values = match self.keys.get_mut(key) {
            Some(values) => values,
            None => self.keys.entry(key.into()).or_default(),
        };
        if value.contains('*') {
            values.by_pattern.push(order, value, rule);
            return None;
        }
        let first = if value.is_empty() { values.any.as_deref() } else { values.exact.get(value) };
        if let Some(first) = first {
            return Some([rule.at, first.at.clone()]);
        }
        if value.is_empty() {
            values.any = Some(Box::new(rule));
        } else {
            values.exact.insert(value.into(), rule);
        }
        None
    }
}
