//! An update of a control plane: all configurations of a version, which hold together or not at
//! all.

use std::collections::HashSet;

use bytes::Bytes;
use prost::Message;

use super::messages::{ConfigDescriptor, ConfigMessage, DiscoveryResponse, TYPE};
use super::nodes::document;
use crate::rules::load::{LoadOptions, Loaded, load_documents};

/// The most descriptors of an update, with the names that they replace. Each takes 2 bytes of a
/// message at least, and many times that once it is read.
const MAX_DESCRIPTORS: usize = 200_000;

impl ConfigDescriptor {
    /// Returns the number of descriptors from here on, with the names that they replace.
    fn count(&self) -> usize {
        let replaced = self.rate_limit.as_ref().map_or(0, |limit| limit.replaces.len());
        1 + replaced + self.descriptors.iter().map(ConfigDescriptor::count).sum::<usize>()
    }
}

/// The response that has the update. Its values are as they came, so they take the memory of a
/// message.
pub(in crate::serve) struct Update(pub(super) DiscoveryResponse);

impl Update {
    pub(in crate::serve) fn version(&self) -> &str {
        &self.0.version_info
    }

    /// Returns whether both have one version and the same configurations, in any order: some
    /// control planes have none.
    pub(in crate::serve) fn is_same(&self, other: &Update) -> bool {
        self.0.version_info == other.0.version_info
            && self.0.type_url == other.0.type_url
            && self.0.resources.len() == other.0.resources.len()
            && self.sorted() == other.sorted()
    }

    fn sorted(&self) -> Vec<(&Bytes, &str)> {
        let mut all: Vec<_> = self.0.resources.iter().map(|it| (&it.value, &*it.type_url)).collect();
        all.sort_unstable();
        all
    }

    /// Returns the rules with their findings. The error is one sentence about a resource that is no
    /// configuration.
    pub(in crate::serve) fn load(&self, options: LoadOptions) -> Result<Loaded, String> {
        if self.0.type_url != TYPE {
            return Err(format!("the update is of the type {:?}, expected {TYPE}", self.0.type_url));
        }
        let mut descriptors = 0;
        let (mut configs, mut names) = (Vec::with_capacity(self.0.resources.len()), HashSet::new());
        for (number, resource) in (1..).zip(&self.0.resources) {
            if resource.type_url != TYPE {
                return Err(format!(
                    "resource {number} is of the type {:?}, expected {TYPE}",
                    resource.type_url
                ));
            }
            let mut config = ConfigMessage::decode(resource.value.clone())
                .map_err(|why| format!("resource {number} cannot be read: {why}"))?;
            if !names.insert(config.name.clone()) {
                return Err(format!("resource {number} has the name {:?}, as one before has", config.name));
            }
            if config.name.is_empty() {
                config.name = format!("resource {number}");
            }
            descriptors += config.descriptors.iter().map(ConfigDescriptor::count).sum::<usize>();
            if descriptors > MAX_DESCRIPTORS {
                return Err(format!("the update has more than {MAX_DESCRIPTORS} descriptors"));
            }
            configs.push(config);
        }
        let documents = configs.iter().map(|config| (&*config.name, document(config)));
        Ok(load_documents(documents, options))
    }
}
