//! `tollgate check PATH...` and `tollgate explain PATH...`: the files of a rate limit service.

use std::fmt::Write;
use std::path::PathBuf;

use crate::files;
use crate::rules::explain::{entries, explain as explained};
use crate::rules::load::{LoadOptions, Loaded, MOST_TOLD, load_all};
use crate::serve::counts::{MAX_KEYS, bound_of_keys};
use crate::serve::options::ServeOptions;
use crate::serve::settings::ServeSettings;
use crate::serve::{pages, sources};
use tollgate_common::output::say;
use tollgate_common::process;
use tollgate_common::settings::error::few;
use tollgate_common::settings::values::switch;

#[cfg(test)]
mod tests;

/// Prints the errors and the warnings of files and of all files below folders.
///
/// Returns whether they may be served: there is no error, and with `strict` no warning, nor one of
/// the checks over HTTP. A path that cannot be read is an error of one sentence.
pub(crate) fn run(options: &ServeOptions, strict: bool, of_checks: &[String]) -> Result<bool, String> {
    let settings = sources::of_process(options)?;
    let (listing, files) = files::read(&options.paths, &[])?;
    let (text, passes) = report(&files, &listing.unread, strict, self::options()?, &settings);
    let passes = passes && (!strict || of_checks.is_empty());
    let of_checks = of_checks.iter().map(|warning| format!("warning: {warning}\n"));
    let bound = format!("{}, unless --max-keys says another number\n", bound_of_keys(MAX_KEYS));
    let text: String = of_checks.chain([text, bound]).collect();
    say(format_args!("{}", text.trim_end()));
    Ok(passes)
}

/// Prints the way of descriptors through the rules, level by level, and their counts if these are
/// in a store. An error is that of the files, of a setting, or of a descriptor.
pub(crate) fn explain(options: &ServeOptions, domain: &str, descriptors: &[String]) -> Result<bool, String> {
    let Loaded { rules, errors, .. } = load_all(&read(&options.paths)?, self::options()?);
    if !errors.is_empty() {
        return Err(few(errors.iter(), MOST_TOLD, "\n"));
    }
    let descriptors: Vec<_> = descriptors.iter().map(|text| entries(text)).collect::<Result<_, _>>()?;
    let settings = sources::of_process(options)?;
    process::serve(async {
        let text = match settings.store.url {
            None => explained(&rules, domain, &descriptors, &[]),
            Some(_) => pages::explained_once(&settings, rules, domain, &descriptors).await?,
        };
        say(format_args!("{}", text.trim_end()));
        Ok(true)
    })
}

/// Returns the options of a load, by the variables that `tollgate serve` follows.
pub(crate) fn options() -> Result<LoadOptions, String> {
    let text = std::env::var("MERGE_DOMAIN_CONFIG").unwrap_or_default();
    let merge_domains = if text.is_empty() { Ok(false) } else { switch(&text) };
    let merge_domains = merge_domains.map_err(|why| format!("MERGE_DOMAIN_CONFIG={text}: {why}"))?;
    Ok(LoadOptions { merge_domains })
}

/// Returns a line for each error, each warning and each note with a sum of them, and whether the
/// files pass. A path that is not read is a warning; a note is none.
fn report(
    files: &[(String, String)],
    unread: &[PathBuf],
    strict: bool,
    options: LoadOptions,
    settings: &ServeSettings,
) -> (String, bool) {
    let Loaded { rules, mut errors, warnings, notes } = load_all(files, options);
    errors.extend(settings.store.not_shared(&rules, settings.algorithm));
    let mut text = String::new();
    for error in &errors {
        let _ = writeln!(text, "{error}");
    }
    for path in unread {
        let _ = writeln!(text, "{}: warning: {}", path.display(), files::UNREAD);
    }
    for (kind, found) in
        warnings.iter().map(|found| ("warning", found)).chain(notes.iter().map(|found| ("note", found)))
    {
        let _ = writeln!(text, "{}: {kind}: {}", found.at, found.what);
    }
    let count = |n: usize, of: &str| format!("{n} {of}{}", if n == 1 { "" } else { "s" });
    let (files, limits) = (count(files.len(), "file"), count(rules.limits().len(), "limit"));
    let warned = warnings.len() + unread.len();
    let _ =
        writeln!(text, "{files}, {limits}: {}, {}", count(errors.len(), "error"), count(warned, "warning"));
    (text, errors.is_empty() && (!strict || warned == 0))
}

/// Returns each file with its text, in the order in which a server loads them. Names the paths
/// below folders that are not read.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<(String, String)>, String> {
    let (listing, files) = files::read(paths, &[])?;
    if let Some(told) = listing.told_unread() {
        eprintln!("{told}");
    }
    Ok(files)
}
