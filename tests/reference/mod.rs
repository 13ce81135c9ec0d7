//! The crate beside the ideal bucket and the spelled-out window of `tollgate_testing::reference`:
//! its clock, its answers, and the subjects that are driven.

pub(crate) mod answers;
pub(crate) mod drive;
pub(crate) mod face;
pub(crate) mod keyed;
pub(crate) mod quotas;
pub(crate) mod subject;
pub(crate) mod time;
pub(crate) mod windows;
