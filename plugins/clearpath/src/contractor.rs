//! Contractors, and until when their certification holds.

use chrono::{DateTime, NaiveDate, Utc};
use punctual_sdk::{Answer, Fields, Page, Problem, Request, Route, Schema, on_either, row, shown, sqlx};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::record::{Record, Shared, held, show};

const STATUSES: [&str; 2] = ["active", "inactive"];

row! {
    #[derive(Debug, Clone)]
    pub(crate) struct Contractor {
        pub(crate) id: Uuid,
        pub(crate) name: String,
        pub(crate) email: Option<String>,
        pub(crate) status: String,
        pub(crate) cnrpp_expiry_date: Option<NaiveDate>,
        pub(crate) last_cnrpp_alert_sent_at: Option<DateTime<Utc>>,
        pub(crate) created_at: DateTime<Utc>,
        pub(crate) updated_at: DateTime<Utc>,
    }
}

/// Selects contractors, by the names of all columns; the rest of the statement says which.
macro_rules! select_contractors {
    ($which:literal) => {
        concat!(
            "SELECT id, name, email, status, cnrpp_expiry_date, last_cnrpp_alert_sent_at, created_at, updated_at \
             FROM clearpath_contractors ",
            $which
        )
    };
}
pub(crate) use select_contractors;

impl Record for Contractor {
    const NOUN: &'static str = "contractor";
    const ONE: &'static str = select_contractors!("WHERE id = $1");

    fn view(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "email": self.email,
            "status": self.status,
            "cnrppExpiryDate": self.cnrpp_expiry_date,
            "lastCnrppAlertSentAt": self.last_cnrpp_alert_sent_at.map(shown),
            "createdAt": shown(self.created_at),
            "updatedAt": shown(self.updated_at),
        })
    }
}

impl Shared for Contractor {
    const HOLD: &'static str = "UPDATE clearpath_contractors SET updated_at = updated_at WHERE id = $1";
}

impl Contractor {
    /// What a caller may say of it, as they would say it.
    fn said(&self) -> Value {
        json!({"name": self.name, "email": self.email, "status": self.status, "cnrppExpiryDate": self.cnrpp_expiry_date})
    }

    fn read(&mut self, mut fields: Fields) -> Result<(), Problem> {
        self.name = fields.needs("name", Fields::text);
        self.email = fields.email("email");
        self.status = fields.word("status", &STATUSES).unwrap_or("active").to_owned();
        self.cnrpp_expiry_date = fields.date("cnrppExpiryDate");
        fields.finish()
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let changes = || {
        [
            ("email", Schema::format("email")),
            ("status", Schema::word(STATUSES)),
            ("cnrppExpiryDate", Schema::format("date")),
        ]
    };
    let shape = || {
        Schema::object([
            ("id", Schema::id()),
            ("name", Schema::text().example("Radon Ltd.")),
            ("email", Schema::text().or_null()),
            ("status", Schema::word(STATUSES)),
            ("cnrppExpiryDate", Schema::format("date").or_null()),
            ("lastCnrppAlertSentAt", Schema::instant().or_null()),
            ("createdAt", Schema::instant()),
            ("updatedAt", Schema::instant()),
        ])
    };
    let name = || ("name", Schema::field_text());
    vec![
        Route::get("/contractors", list)
            .named("listContractors", "Lists contractors, newest first")
            .answers_page(shape()),
        Route::post("/contractors", create)
            .named("createContractor", "Makes a contractor")
            .takes(
                Schema::object([name()]).takes(changes()),
                json!({"name": "Radon Ltd.", "cnrppExpiryDate": "2036-12-31"}),
            )
            .answers(201, "The contractor", shape()),
        Route::get("/contractors/{id}", show::<Contractor>).named("getContractor", "Shows a contractor").answers(
            200,
            "The contractor",
            shape(),
        ),
        Route::patch("/contractors/{id}", patch)
            .named("patchContractor", "Changes some fields of a contractor")
            .takes(Schema::object([]).may_have([name()]).takes(changes()), json!({"cnrppExpiryDate": "2038-12-31"}))
            .answers(200, "The contractor", shape()),
    ]
}

async fn list(request: Request) -> Result<Answer, Problem> {
    let mut query = request.query();
    let page = Page::of(&mut query);
    query.finish()?;
    let some = select_contractors!("WHERE id < $1 ORDER BY id DESC LIMIT $2");
    let found: Vec<Contractor> = on_either!(request.database(), |pool| {
        sqlx::query_as(some).bind(page.before()).bind(page.rows()).fetch_all(pool).await?
    });
    page.answer(found.iter().map(Contractor::view))
}

async fn create(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut contractor = Contractor {
        id: Uuid::now_v7(),
        name: String::new(),
        email: None,
        status: String::new(),
        cnrpp_expiry_date: None,
        last_cnrpp_alert_sent_at: None,
        created_at: request.now,
        updated_at: request.now,
    };
    contractor.read(request.fields())?;
    let mut transaction = request.database().begin().await?;
    let insert =
        "INSERT INTO clearpath_contractors (id, name, email, status, cnrpp_expiry_date, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $6)";
    on_either!(transaction, |connection| {
        let bound = sqlx::query(insert).bind(contractor.id).bind(&contractor.name).bind(&contractor.email);
        let bound = bound.bind(&contractor.status).bind(contractor.cnrpp_expiry_date).bind(contractor.created_at);
        bound.execute(connection).await?;
    });
    request.commit(transaction, Answer::created(contractor.view())?).await
}

async fn patch(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut transaction = request.database().begin().await?;
    // What the job writes comes before or after this, and is not undone by what was read earlier.
    let mut contractor: Contractor = held(&mut transaction, &request).await?;
    let fields = request.merged_into(contractor.said());
    contractor.read(fields)?;
    contractor.updated_at = request.now;
    let update =
        "UPDATE clearpath_contractors SET name = $2, email = $3, status = $4, cnrpp_expiry_date = $5, updated_at = $6
        WHERE id = $1";
    on_either!(transaction, |connection| {
        let bound = sqlx::query(update).bind(contractor.id).bind(&contractor.name).bind(&contractor.email);
        let bound = bound.bind(&contractor.status).bind(contractor.cnrpp_expiry_date).bind(contractor.updated_at);
        bound.execute(connection).await?;
    });
    transaction.commit().await?;
    Answer::ok(contractor.view())
}
