//! The cases of a load in the file of all cases, and the rules that its requests find.

use serde_json::{Map, Value};

use crate::rules::load::{LoadOptions, load};
use crate::rules::tree::{Amount, Rules};

const CASES: &str = include_str!("../../../tests/it/rls_cases.json");

#[test]
fn each_case_loads_as_it_says_and_each_of_its_requests_finds_its_limit() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let (mut refused, mut found) = (0, 0);
    for case in cases["cases"].as_array().unwrap() {
        let id = &case["id"];
        let options = LoadOptions { merge_domains: case["env"]["MERGE_DOMAIN_CONFIG"] == "true" };
        let mut files = case["files"].as_object().unwrap().clone();
        let mut rules = load(&texts(&files), options);
        if let Value::String(told) = &case["load"]["error"] {
            let errors = rules.expect_err(&id.to_string());
            assert!(errors.iter().any(|error| error.what.contains(told)), "{id}: {errors:?}");
            refused += 1;
            continue;
        }
        for step in case["steps"].as_array().unwrap() {
            if let Some(written) = step["write"].as_object() {
                let before = files.clone();
                files.extend(written.clone());
                let reloaded = load(&texts(&files), options);
                assert_eq!(reloaded.is_ok(), step["expect"] == "loaded", "{id}: {reloaded:?}");
                match reloaded {
                    Ok(_) => rules = reloaded,
                    Err(_) => files = before,
                }
            }
            found += check_call(rules.as_ref().unwrap(), &step["call"], &step["expect"], id);
        }
    }
    assert_eq!((refused, found), (14, 82));
}

/// Returns the files as a load takes them. A file without a text is removed.
fn texts(files: &Map<String, Value>) -> Vec<(String, String)> {
    files.iter().filter_map(|(path, text)| Some((path.clone(), text.as_str()?.to_owned()))).collect()
}

/// Returns the statuses with a limit, after a comparison with the rule that is found.
fn check_call(rules: &Rules, call: &Value, expect: &Value, id: &Value) -> usize {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut found = 0;
    let descriptors = call["descriptors"].as_array().into_iter().flatten();
    for (descriptor, status) in descriptors.zip(expect["statuses"].as_array().into_iter().flatten()) {
        if !descriptor["limit"].is_null() || status["limit"].is_null() {
            continue;
        }
        let entries: Vec<_> = descriptor["entries"].as_array().unwrap().iter().collect();
        let entries: Vec<_> =
            entries.iter().map(|entry| (text(&entry["key"]), text(&entry["value"]))).collect();
        let domain = rules.domain(call["domain"].as_str().unwrap()).unwrap();
        let limit = domain.find(entries.iter().map(|(key, value)| (&**key, &**value)));
        let Amount::Window { unit, requests } = limit.unwrap().amount else { panic!("{id}") };
        assert_eq!(status["limit"]["requestsPerUnit"], requests, "{id}");
        assert_eq!(status["limit"]["unit"], unit.name(), "{id}");
        found += 1;
    }
    found
}
