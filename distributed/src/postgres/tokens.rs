//! The table of buckets that are refilled at intervals.

use super::store::PostgresStore;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::tokens::requester::TokenTable;

const TABLE: &str = include_str!("../../migrations/postgres/tokens.sql");

impl TokenTable for PostgresStore {
    async fn create_token_table(&self) -> Result<(), StoreError> {
        self.run(TABLE).await
    }

    async fn take_token(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        let rows = self.ask(|session| async move { session.take_token(&id).await }).await?;
        let taken = rows.first().map_or(Ok(false), |row| row.try_get(0));
        taken.map_err(|error| StoreError::new(StoreErrorKind::Permanent, error))
    }
}
