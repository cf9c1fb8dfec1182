//! `punctual next`: the next instants of a cron expression, without a service or a database.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use anyhow::{Context, Result, bail};
use chrono::{DateTime, SecondsFormat, Utc};
use punctual_domain::time::{DstPolicy, Expression, Recurrence, ZoneDatabase};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Prints the next instants of a cron expression in a time zone.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "punctual next [OPTIONS] --tz <ZONE> <EXPR>\n       punctual next [OPTIONS] --stdin",
    after_help = "\
Examples:
  punctual next '0 9 * * 1-5' --tz America/Mexico_City
  punctual next @daily --tz UTC --count 3 --json
  echo '{\"id\": 1, \"expr\": \"0 9 * * *\", \"tz\": \"UTC\"}' | punctual next --stdin"
)]
pub struct NextArgs {
    /// The cron expression, quoted: five fields, six with leading seconds, or @daily and its like
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin")]
    pub expr: Option<String>,

    /// The IANA time zone the expression is read in, such as America/New_York
    #[arg(long, value_name = "ZONE", required_unless_present = "stdin")]
    pub tz: Option<String>,

    /// Only instants after this one, in RFC 3339 [default: now]
    #[arg(long, value_name = "T", value_parser = parse_instant)]
    pub after: Option<DateTime<Utc>>,

    /// How many instants, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=MAX_COUNT))]
    pub count: u64,

    /// Print one JSON object, {"next": […]}
    #[arg(long, conflicts_with = "stdin")]
    pub json: bool,

    /// Read JSON lines {"id", "expr", "tz", "after", "count"} and answer each with a JSON line;
    /// --tz, --after and --count stand in for what a line leaves out
    #[arg(long)]
    pub stdin: bool,
}

const MAX_COUNT: u64 = 10_000;
/// How many expressions are kept parsed while reading lines.
const MAX_CACHED: usize = 1_000;

/// Answers the question in the arguments, or each one on `input` with `--stdin`.
pub fn run(
    args: &NextArgs,
    zones: &ZoneDatabase,
    now: DateTime<Utc>,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<()> {
    let mut questions = Questions::new(args, zones, now);
    if args.stdin {
        return answer_lines(&mut questions, input, output);
    }
    let next = questions.answer(&Question { expr: args.expr.clone().map(Value::String), ..Question::default() })?;
    if args.json {
        let answer = serde_json::json!({ "next": next });
        writeln!(output, "{answer}")?;
    } else {
        for instant in next {
            writeln!(output, "{instant}")?;
        }
    }
    Ok(())
}

/// Answers every line with one line, in order; a line that cannot be read is answered too.
fn answer_lines(questions: &mut Questions<'_>, mut input: impl BufRead, mut output: impl Write) -> Result<()> {
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        let mut answer = serde_json::to_string(&answer_line(questions, &line))?;
        answer.push('\n');
        // Whole lines at once, so that a program on the other end can wait for each answer.
        output.write_all(answer.as_bytes())?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}

fn answer_line<'l>(questions: &mut Questions<'_>, line: &'l [u8]) -> Answer<'l> {
    match read_question(line) {
        Ok(question) => Answer {
            id: question.id,
            outcome: match questions.answer(&question) {
                Ok(next) => Outcome::Next(next),
                Err(error) => Outcome::Error(format!("{error:#}")),
            },
        },
        Err(error) => Answer {
            id: None,
            outcome: Outcome::Error(format!(
                "the line is not a JSON object such as {{\"id\":1,\"expr\":\"0 9 * * *\",\"tz\":\"UTC\"}}: {error}"
            )),
        },
    }
}

fn read_question(line: &[u8]) -> serde_json::Result<Question<'_>> {
    // A list would do for a struct, and nobody would know which place means what.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err(serde::de::Error::custom("it does not start with {"));
    }
    serde_json::from_slice(line)
}

/// A line of input. Types are checked field by field, so that a refusal keeps the line's id.
#[derive(Default, Deserialize)]
struct Question<'l> {
    /// Echoed exactly as it was written.
    #[serde(borrow, default)]
    id: Option<&'l RawValue>,
    expr: Option<Value>,
    tz: Option<Value>,
    after: Option<Value>,
    count: Option<Value>,
}

#[derive(Serialize)]
struct Answer<'l> {
    id: Option<&'l RawValue>,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Next(Vec<String>),
    Error(String),
}

/// What stays the same from question to question.
struct Questions<'a> {
    args: &'a NextArgs,
    zones: &'a ZoneDatabase,
    now: DateTime<Utc>,
    parsed: HashMap<String, Expression>,
}

impl<'a> Questions<'a> {
    fn new(args: &'a NextArgs, zones: &'a ZoneDatabase, now: DateTime<Utc>) -> Self {
        Self { args, zones, now, parsed: HashMap::new() }
    }

    fn answer(&mut self, question: &Question<'_>) -> Result<Vec<String>> {
        let expr = text("expr", &question.expr)?.context("expr is missing")?;
        let tz = text("tz", &question.tz)?
            .or(self.args.tz.as_deref())
            .context("tz is missing, give an IANA time zone such as America/New_York")?;
        let after = match text("after", &question.after)? {
            Some(after) => parse_instant(after).map_err(|why| anyhow::anyhow!("after {after:?} {why}"))?,
            None => self.args.after.unwrap_or(self.now),
        };
        let count = match &question.count {
            None | Some(Value::Null) => self.args.count,
            Some(count) => match count.as_u64() {
                Some(count) if (1..=MAX_COUNT).contains(&count) => count,
                _ => bail!("count {count} is not a whole number from 1 to {MAX_COUNT}"),
            },
        };
        let recurrence = Recurrence::Cron {
            expression: self.expression(expr)?,
            zone: self.zones.zone(tz)?,
            dst: DstPolicy::default(),
        };
        Ok(recurrence
            .upcoming(after)
            .take(count as usize)
            .map(|fire| fire.at.to_rfc3339_opts(SecondsFormat::Secs, true))
            .collect())
    }

    fn expression(&mut self, text: &str) -> Result<Expression> {
        if let Some(expression) = self.parsed.get(text) {
            return Ok(expression.clone());
        }
        let expression = Expression::parse(text)?;
        if self.parsed.len() == MAX_CACHED {
            self.parsed.clear();
        }
        self.parsed.insert(text.to_string(), expression.clone());
        Ok(expression)
    }
}

fn text<'v>(name: &str, value: &'v Option<Value>) -> Result<Option<&'v str>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => bail!("{name} is not a string"),
    }
}

fn parse_instant(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text)
        .map(|instant| instant.to_utc())
        .map_err(|_| "is not an RFC 3339 instant such as 2026-11-16T14:30:00Z".to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        next: NextArgs,
    }

    fn parse(args: &[&str]) -> Result<NextArgs, clap::Error> {
        let args = ["next"].iter().chain(args);
        Cli::try_parse_from(args).map(|cli| cli.next)
    }

    fn next_with_input(args: &[&str], input: &[u8]) -> Result<String> {
        let args = parse(args)?;
        let now = parse_instant("2026-11-16T12:00:00Z").unwrap();
        let mut output = Vec::new();
        run(&args, &ZoneDatabase::bundled(), now, input, &mut output)?;
        Ok(String::from_utf8(output)?)
    }

    fn next(args: &[&str]) -> Result<String> {
        next_with_input(args, b"")
    }

    fn next_lines(input: &str) -> Vec<String> {
        let output = next_with_input(&["--stdin"], input.as_bytes()).unwrap();
        output.lines().map(str::to_string).collect()
    }

    #[test]
    fn instants_are_printed_one_per_line() {
        let output = next(&["30 8 * * *", "--tz", "America/Edmonton", "--count", "2"]).unwrap();
        assert_eq!(output, "2026-11-16T14:30:00Z\n2026-11-17T14:30:00Z\n");
    }

    #[test]
    fn an_expression_may_start_with_a_star() {
        let args = ["*/15 * * * *", "--tz", "UTC"];
        assert_eq!(next(&args).unwrap().lines().count(), 5);
    }

    #[test]
    fn json_is_one_object() {
        let args = ["@yearly", "--tz", "UTC", "--count", "2", "--json", "--after", "2030-01-01T01:00:00+01:00"];
        assert_eq!(next(&args).unwrap(), "{\"next\":[\"2031-01-01T00:00:00Z\",\"2032-01-01T00:00:00Z\"]}\n");
    }

    #[test]
    fn a_refusal_says_why() {
        let refused = |args: &[&str]| next(args).unwrap_err().to_string();
        assert_eq!(
            refused(&["0 9 * * *", "--tz", "EST"]),
            "time zone \"EST\" is not an IANA name of the form Area/Location, use America/New_York"
        );
        assert!(refused(&["0 0 30 2 *", "--tz", "UTC"]).contains("can never fire"));
    }

    #[test]
    fn arguments_that_make_no_sense_are_usage_errors() {
        for args in [
            &["0 9 * * *"][..],
            &[],
            &["--tz", "UTC"],
            &["0 9 * * *", "--stdin"],
            &["0 9 * * *", "--tz", "UTC", "--count", "0"],
            &["0 9 * * *", "--tz", "UTC", "--count", "10001"],
            &["0 9 * * *", "--tz", "UTC", "--after", "tomorrow"],
        ] {
            assert_eq!(parse(args).unwrap_err().exit_code(), 2, "{args:?}");
        }
    }

    #[test]
    fn each_line_is_answered_in_order_with_its_own_id() {
        let answers = next_lines(concat!(
            "{\"id\":\"a\",\"expr\":\"0 9 * * *\",\"tz\":\"UTC\",\"after\":\"2026-01-01T00:00:00Z\",\"count\":1}\n",
            "{\"id\":{\"n\":1.00},\"expr\":\"0 9 * *\",\"tz\":\"UTC\"}\n",
            "{\"expr\":\"0 9 * * *\",\"tz\":\"UTC\",\"count\":1}\r\n",
            "{\"id\":12345678901234567890123,\"expr\":\"0 9 * * *\",\"tz\":\"UTC\",\"after\":null,\"count\":null}",
        ));
        assert_eq!(answers[0], r#"{"id":"a","next":["2026-01-01T09:00:00Z"]}"#);
        assert!(answers[1].starts_with(r#"{"id":{"n":1.00},"error":"cron expression"#));
        assert_eq!(answers[2], r#"{"id":null,"next":["2026-11-17T09:00:00Z"]}"#);
        assert!(answers[3].starts_with(r#"{"id":12345678901234567890123,"next":["2026-11-17"#));
        assert_eq!(answers[3].matches('Z').count(), 5);
        assert_eq!(answers.len(), 4);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_answered_with_a_null_id() {
        let input =
            b"not json\n\n[1,\"0 9 * * *\",\"UTC\",null,1]\n\"text\"\n{\"id\":1\n\xff\xfe\n{\"id\":7,\"id\":8}\n";
        let output = next_with_input(&["--stdin"], input).unwrap();
        assert_eq!(output.lines().count(), 7);
        for line in output.lines() {
            assert!(line.starts_with(r#"{"id":null,"error":"#), "{line}");
        }
    }

    #[test]
    fn a_wrong_field_is_named_and_keeps_the_id() {
        for (fields, says) in [
            (r#""tz":"UTC""#, "expr is missing"),
            (r#""expr":5,"tz":"UTC""#, "expr is not a string"),
            (r#""expr":"0 9 * * *""#, "tz is missing, give an IANA time zone such as America/New_York"),
            (
                r#""expr":"0 9 * * *","tz":"UTC","after":"x""#,
                "after \\\"x\\\" is not an RFC 3339 instant such as 2026-11-16T14:30:00Z",
            ),
            (r#""expr":"0 9 * * *","tz":"UTC","count":0"#, "count 0 is not a whole number from 1 to 10000"),
            (r#""expr":"0 9 * * *","tz":"UTC","count":"3""#, "count \\\"3\\\" is not a whole number from 1 to 10000"),
        ] {
            let answers = next_lines(&format!("{{\"id\":1,{fields}}}\n"));
            assert_eq!(answers, [format!("{{\"id\":1,\"error\":\"{says}\"}}")]);
        }
    }

    #[test]
    fn arguments_stand_in_for_what_a_line_leaves_out() {
        let output = next_with_input(&["--stdin", "--tz", "Asia/Tokyo", "--count", "1"], b"{\"expr\":\"0 9 * * *\"}\n");
        assert_eq!(output.unwrap(), "{\"id\":null,\"next\":[\"2026-11-17T00:00:00Z\"]}\n");
    }

    #[test]
    fn more_expressions_than_are_kept_parsed_are_still_answered() {
        let input: String = (0..MAX_CACHED + 10)
            .map(|n| {
                format!(
                    "{{\"id\":{n},\"expr\":\"{} {} {} * *\",\"tz\":\"UTC\",\"count\":1}}\n",
                    n % 60,
                    n % 24,
                    n % 28 + 1
                )
            })
            .collect();
        let answers = next_lines(&input);
        assert_eq!(answers.len(), MAX_CACHED + 10);
        assert!(answers.iter().all(|answer| answer.contains("\"next\"")));
    }
}
