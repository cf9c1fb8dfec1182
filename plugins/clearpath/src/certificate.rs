//! Certificates: made when a result is there, expired when their time is over, downloaded as a PDF.

use chrono::{DateTime, Months, NaiveDate, Utc};
use punctual_sdk::{
    Answer, Attempt, Context, Database, Error, Outcome, Problem, Request, Route, Schema, on_either, row, shown, sqlx,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::error;
use uuid::Uuid;

use crate::ZONE;
use crate::pdf;
use crate::record::{OfSession, Record, find, found, list, show};
use crate::session::{Session, TestResult};

pub(crate) const TOPIC: &str = "clearpath.certificate";

const STATUSES: [&str; 2] = ["valid", "expired"];
/// How long a certificate is valid.
const VALID: Months = Months::new(24);

row! {
    #[derive(Debug, Clone)]
    struct Certificate {
        id: Uuid,
        test_session_id: Uuid,
        status: String,
        issued_on: NaiveDate,
        valid_until: NaiveDate,
        expired_at: Option<DateTime<Utc>>,
        pdf: Option<Vec<u8>>,
        pdf_needs_regeneration: bool,
        created_at: DateTime<Utc>,
        updated_at: DateTime<Utc>,
    }
}

/// Selects certificates, by the names of all columns; the rest of the statement says which.
macro_rules! select_certificates {
    ($which:literal) => {
        concat!(
            "SELECT id, test_session_id, status, issued_on, valid_until, expired_at, pdf, pdf_needs_regeneration, \
             created_at, updated_at FROM clearpath_certificates ",
            $which
        )
    };
}

impl Certificate {
    async fn of_session(database: &Database, session: Uuid) -> Result<Option<Self>, sqlx::Error> {
        let one = select_certificates!("WHERE test_session_id = $1");
        on_either!(database, |pool| sqlx::query_as(one).bind(session).fetch_optional(pool).await)
    }

    /// Draws its PDF as it stands now, and keeps that.
    async fn draw(&self, database: &Database, now: DateTime<Utc>) -> Result<Vec<u8>, Error> {
        let session: Session = find(database, self.test_session_id).await?.ok_or("its session is gone")?;
        let result = TestResult::of_session(database, session.id).await?.ok_or("its result is gone")?;
        let bytes = pdf::write(&pdf::Page {
            number: &self.id.to_string(),
            name: &session.name,
            order: session.clearpath_order_id.as_deref().unwrap_or("-"),
            radon_level: result.radon_level,
            issued_on: &self.issued_on.to_string(),
            valid_until: &self.valid_until.to_string(),
            is_expired: self.status == "expired",
        });
        // Not if it has expired in between: what was drawn does not say so.
        let keep = "UPDATE clearpath_certificates SET pdf = $2, pdf_needs_regeneration = $3, updated_at = $4
            WHERE id = $1 AND status = $5";
        on_either!(database, |pool| {
            let bound = sqlx::query(keep).bind(self.id).bind(&bytes).bind(false).bind(now).bind(&self.status);
            bound.execute(pool).await?;
        });
        Ok(bytes)
    }
}

impl Record for Certificate {
    const NOUN: &'static str = "certificate";
    const ONE: &'static str = select_certificates!("WHERE id = $1");

    fn view(&self) -> Value {
        json!({
            "id": self.id,
            "testSessionId": self.test_session_id,
            "status": self.status,
            "issuedOn": self.issued_on,
            "validUntil": self.valid_until,
            "expiredAt": self.expired_at.map(shown),
            "pdfNeedsRegeneration": self.pdf_needs_regeneration,
            "createdAt": shown(self.created_at),
            "updatedAt": shown(self.updated_at),
        })
    }
}

impl OfSession for Certificate {
    const STATUSES: &'static [&'static str] = &STATUSES;
    const SOME: &'static str = select_certificates!(
        "WHERE id < $1 AND ($2 IS NULL OR status = $2) AND ($3 IS NULL OR test_session_id = $3)
        ORDER BY id DESC LIMIT $4"
    );
}

/// Makes the certificate of a session that has a result, once, and its PDF.
async fn make(context: &Context, session: Uuid, now: DateTime<Utc>) -> Result<Certificate, Error> {
    let database = context.database();
    TestResult::of_session(&database, session).await?.ok_or("the session has no result")?;
    let issued_on = context.zone(ZONE)?.date(now);
    let valid_until = issued_on.checked_add_months(VALID).ok_or("the calendar ends")?;
    let insert = "INSERT INTO clearpath_certificates (id, test_session_id, status, issued_on, valid_until,
        pdf_needs_regeneration, created_at, updated_at) VALUES ($1, $2, 'valid', $3, $4, $5, $6, $6)
        ON CONFLICT (test_session_id) DO NOTHING";
    on_either!(database, |pool| {
        let bound = sqlx::query(insert).bind(Uuid::now_v7()).bind(session).bind(issued_on).bind(valid_until);
        bound.bind(true).bind(now).execute(pool).await?;
    });
    let certificate = Certificate::of_session(&database, session).await?.ok_or("the certificate is gone")?;
    if certificate.pdf_needs_regeneration || certificate.pdf.is_none() {
        certificate.draw(&database, now).await?;
    }
    Ok(Certificate::of_session(&database, session).await?.unwrap_or(certificate))
}

/// The payload of the task that makes a certificate.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    session_id: Uuid,
}

/// Makes a certificate after its result was entered. If that fails the result stays, and somebody can try again.
pub(crate) async fn generate(attempt: Attempt) -> Result<Outcome, Error> {
    let Wanted { session_id } = attempt.payload_as()?;
    match make(&attempt.context, session_id, attempt.started_at).await {
        Ok(certificate) => Ok(Outcome::completed_with(certificate.id)),
        Err(failed) => {
            error!(%session_id, err = %failed, "certificate not made");
            Err(failed)
        }
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let shape = || {
        Schema::object([
            ("id", Schema::id()),
            ("testSessionId", Schema::id()),
            ("status", Schema::word(STATUSES)),
            ("issuedOn", Schema::format("date")),
            ("validUntil", Schema::format("date")),
            ("expiredAt", Schema::instant().or_null()),
            ("pdfNeedsRegeneration", Schema::flag()),
            ("createdAt", Schema::instant()),
            ("updatedAt", Schema::instant()),
        ])
    };
    let session = Schema::object([("sessionId", Schema::id())]);
    vec![
        Route::get("/certificates", list::<Certificate>)
            .named("listCertificates", "Lists certificates, newest first")
            .query("status", Schema::word(STATUSES))
            .query("sessionId", Schema::id())
            .answers_page(shape()),
        Route::post("/certificates", create)
            .named("createCertificate", "Makes the certificate of a test session that has a result, if it has none")
            .takes(session, json!({"sessionId": "018f0000-0000-7000-8000-000000000000"}))
            .may_conflict()
            .answers(201, "The certificate", shape()),
        Route::get("/certificates/{id}", show::<Certificate>).named("getCertificate", "Shows a certificate").answers(
            200,
            "The certificate",
            shape(),
        ),
        Route::get("/certificates/{id}/download", download)
            .named("downloadCertificate", "The certificate as a PDF, with a watermark if it has expired")
            .may_conflict()
            .answers_file("application/pdf", "The PDF"),
        Route::post("/certificates/{id}/regenerate", regenerate)
            .named("regenerateCertificate", "Draws the PDF of a certificate anew")
            .may_conflict()
            .answers(200, "The certificate", shape()),
    ]
}

async fn create(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut fields = request.fields();
    let session = fields.needs("sessionId", |fields, name| fields.id(name));
    fields.finish()?;
    let database = request.database();
    if find::<Session>(&database, session).await?.is_none() {
        return Err(Problem::invalid("sessionId", format!("there is no session {session}")));
    }
    if TestResult::of_session(&database, session).await?.is_none() {
        return Err(Problem::conflict("the session has no result yet"));
    }
    Answer::created(make(&request.context, session, request.now).await?.view())
}

async fn download(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let certificate: Certificate = found(&request).await?;
    let name = format!("certificate-{}.pdf", certificate.id);
    let kept = match (certificate.pdf_needs_regeneration, certificate.pdf.clone()) {
        (false, Some(bytes)) => return Ok(Answer::file("application/pdf", name, bytes)),
        (_, kept) => kept,
    };
    match (certificate.draw(&request.database(), request.now).await, kept) {
        (Ok(bytes), _) => Ok(Answer::file("application/pdf", name, bytes)),
        (Err(failed), kept) => {
            error!(certificate = %certificate.id, err = %failed, "certificate not regenerated");
            // The old one, without a watermark, is better than none.
            let bytes = kept.ok_or_else(|| Problem::conflict(format!("the certificate cannot be drawn: {failed}")))?;
            Ok(Answer::file("application/pdf", name, bytes))
        }
    }
}

async fn regenerate(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    request.fields().finish()?;
    let certificate: Certificate = found(&request).await?;
    if let Err(failed) = certificate.draw(&request.database(), request.now).await {
        error!(certificate = %certificate.id, err = %failed, "certificate not regenerated");
        return Err(Problem::conflict(format!("the certificate cannot be drawn: {failed}")));
    }
    Answer::ok(found::<Certificate>(&request).await?.view())
}
