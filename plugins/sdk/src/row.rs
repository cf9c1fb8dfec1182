/// Makes a struct whose fields are read from the columns of the same names, on either database.
///
/// ```
/// use punctual_sdk::{Database, Error, on_either, row, sqlx};
///
/// row! {
///     /// A greeting.
///     #[derive(Debug)]
///     pub(crate) struct Greeting {
///         pub(crate) language: String,
///         pub(crate) text: Option<String>,
///     }
/// }
///
/// async fn greetings(database: &Database) -> Result<Vec<Greeting>, Error> {
///     let all = "SELECT language, text FROM greetings";
///     Ok(on_either!(database, |pool| sqlx::query_as(all).fetch_all(pool).await?))
/// }
/// # let _ = greetings;
/// ```
#[macro_export]
macro_rules! row {
    ($(#[$about:meta])* $seen:vis struct $name:ident { $($(#[$of:meta])* $shown:vis $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        $seen struct $name { $($(#[$of])* $shown $field: $kind,)* }

        impl $crate::sqlx::FromRow<'_, $crate::sqlx::sqlite::SqliteRow> for $name {
            fn from_row(row: &$crate::sqlx::sqlite::SqliteRow) -> Result<Self, $crate::sqlx::Error> {
                use $crate::sqlx::Row as _;
                Ok(Self { $($field: row.try_get(stringify!($field))?,)* })
            }
        }

        impl $crate::sqlx::FromRow<'_, $crate::sqlx::postgres::PgRow> for $name {
            fn from_row(row: &$crate::sqlx::postgres::PgRow) -> Result<Self, $crate::sqlx::Error> {
                use $crate::sqlx::Row as _;
                Ok(Self { $($field: row.try_get(stringify!($field))?,)* })
            }
        }
    };
}
