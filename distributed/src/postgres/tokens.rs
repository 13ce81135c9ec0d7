//! The table of buckets that are refilled at intervals.

use super::statement::bytes;
use super::store::PostgresStore;
use crate::store::error::StoreError;
use crate::tokens::requester::TokenTable;

const TABLE: &str = include_str!("../../migrations/postgres/tokens.sql");

impl TokenTable for PostgresStore {
    async fn create_token_table(&self) -> Result<(), StoreError> {
        self.run(TABLE).await
    }

    async fn take_token(&self, id: &str) -> Result<bool, StoreError> {
        let statement = format!("SELECT request_token(convert_from({}, 'UTF8'))", bytes(id.as_bytes()));
        let rows = self.ask(statement).await?;
        Ok(rows.first().and_then(|row| row.get(0)) == Some("t"))
    }
}
