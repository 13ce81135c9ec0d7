//! The table of buckets that are refilled at intervals.

use super::statements::{Statements, push_bytes};
use super::store::{MySqlStore, cell};
use crate::store::error::StoreError;
use crate::tokens::requester::TokenTable;

const TABLE: &str = include_str!("../../migrations/mysql/tokens.sql");
const REQUEST_TOKEN: &str = include_str!("../../migrations/mysql/request_token.sql");

impl TokenTable for MySqlStore {
    async fn create_token_table(&self) -> Result<(), StoreError> {
        self.create([("token_buckets", TABLE), ("request_token", REQUEST_TOKEN)]).await
    }

    async fn take_token(&self, id: &str) -> Result<bool, StoreError> {
        let mut sql = String::from("CALL request_token(_utf8mb4 ");
        push_bytes(&mut sql, id.as_bytes());
        sql.push(')');
        cell(&self.ask(Statements::of(sql)).await?, 0)
    }
}
