//! The settings of both sources, put together.

use std::path::Path;

use tollgate::Quota;
use tollgate_adaptive::Priority;
use tollgate_http::Policy;

use super::checks::check;
use super::origins::{Origins, name_of};
use super::rows::{ProxyTable, ROUTE};
use super::settings::{Route, Settings};
use tollgate_common::settings::error::{Mistake, check_all, mistake};
use tollgate_common::settings::options::Table;
use tollgate_common::settings::table::apply;
use tollgate_common::settings::toml_file::Part;

/// Puts settings together: the options override the file, and both override the base.
pub(super) fn over(given: Origins<'_>, base: &Settings) -> Result<Settings, Mistake> {
    let mut to = base.clone();
    let mut mistakes = apply(&mut to, ProxyTable::settings(), &[given.file, given.options]);
    mistakes.extend(apply_routes(given, &mut to).err());
    check_all(mistakes)?;
    check(given, &mut to)?;
    Ok(to)
}

/// Changes the routes that are named, and adds those that are new.
fn apply_routes(given: Origins<'_>, to: &mut Settings) -> Result<(), Mistake> {
    let removed = given.file.texts.get("remove_routes").map_or(&[][..], |removed| &removed.texts);
    let mut named = vec!["default".to_owned()];
    for table in given.routes {
        let (name, at) = apply_route(table, &mut to.routes)?;
        if named.contains(&name) {
            return Err(mistake(at, format!("the name {name:?} is taken")));
        }
        if removed.iter().any(|removed| removed.text == name) {
            return Err(mistake(at, format!("the route {name:?} is one of remove_routes")));
        }
        named.push(name);
    }
    for (name, table) in named.iter().skip(1).zip(given.routes) {
        let prefix = &table.texts["prefix"];
        let own = &prefix.texts[0].text;
        let is_same = |route: &&Route| {
            let [one, other] = [&route.prefix, own].map(|prefix| prefix.trim_end_matches('/'));
            let same = if to.case_sensitive { one == other } else { one.eq_ignore_ascii_case(other) };
            // Routes of one prefix hold together.
            route.prefix != *own && same
        };
        if let Some(other) = to.routes.iter().filter(is_same).find(|route| route.name != *name) {
            let hint = if named.contains(&other.name) { "" } else { "; remove_routes removes it" };
            let (name, other) = (&other.name, &other.prefix);
            let what = format!("the route {name:?} has the prefix {other:?}, which has the same paths{hint}");
            return Err(mistake(prefix.at(), what));
        }
    }
    Ok(())
}

/// Changes the route of this name, or adds it. Returns its name, and its offset in the file.
fn apply_route(table: &Part, routes: &mut Vec<Route>) -> Result<(String, Option<usize>), Mistake> {
    let missing = |name| mistake(Some(table.at), format!("missing field `{name}`"));
    table.texts.get("prefix").ok_or_else(|| missing("prefix"))?;
    let named = name_of(table);
    let name = named.texts.first().map(|text| text.text.clone()).unwrap_or_default();
    let index = routes.iter().position(|route| route.name == name).unwrap_or(routes.len());
    if index == routes.len() {
        routes.push(Route {
            name: name.clone(),
            prefix: String::new(),
            rule: Quota::per_second(1).into(),
            cost: 1,
            priority: Priority::Critical,
            key: None,
            ban: None,
            delay: None,
        });
    }
    let route = &mut routes[index];
    for setting in ROUTE {
        if let Some(texts) = table.texts.get(setting.name) {
            setting.apply(route, texts, Path::new(""))?;
        }
    }
    let limit = table.texts.get("limit").ok_or_else(|| missing("limit"))?;
    if let Err(why) = Policy::new(&name, route.rule) {
        let what = match table.texts.contains_key("name") {
            true => format!("the name {name:?}: {why}"),
            false => {
                format!("the prefix {name:?} is no name of a limit, so the route needs a `name`: {why}")
            }
        };
        return Err(mistake(named.at(), what));
    }
    let (cost, most) = (route.cost, route.rule.capacity());
    if cost > most {
        let at = table.texts.get("cost").unwrap_or(limit).at();
        let what = format!("a cost of {cost} is out of the bounds of 1 and the burst, {most}");
        return Err(mistake(at, what));
    }
    Ok((name, named.at()))
}
