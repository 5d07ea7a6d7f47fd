//! The doctor's report, for people and as one JSON object (`docs/doctor.md`).

use serde::Serialize;

use crate::{
    cli::{error::CliError, terminal},
    sandbox::doctor::{Finding, Status},
};

/// What stays risky however well all works.
#[derive(Debug, Serialize)]
pub(super) struct Risk {
    pub(super) id: &'static str,
    pub(super) message: String,
    pub(super) repair: Option<String>,
}

impl Risk {
    pub(super) fn new(id: &'static str, message: impl Into<String>) -> Self {
        Self { id, message: message.into(), repair: None }
    }

    pub(super) fn repair(mut self, repair: impl Into<String>) -> Self {
        self.repair = Some(repair.into());
        self
    }
}

/// The whole report; the order of the fields is that of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    r#type: &'static str,
    schema: u32,
    /// Nothing would stop a run.
    pub(super) ok: bool,
    checks: Vec<Finding>,
    risks: Vec<Risk>,
}

impl Report {
    pub(super) fn new(checks: Vec<Finding>, risks: Vec<Risk>) -> Self {
        let ok = !checks.iter().any(|check| check.status == Status::Problem);
        Self { r#type: "doctor", schema: 1, ok, checks, risks }
    }

    /// Prints it to standard output.
    pub(super) fn print(&self, json: bool) -> Result<(), CliError> {
        let text = if json {
            let line = serde_json::to_string(self)
                .map_err(|error| CliError::internal(format!("cannot print the report: {error}")))?;
            format!("{line}\n")
        } else {
            self.text()
        };
        terminal::out(&text);
        Ok(())
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        for check in &self.checks {
            let label = label(check.status);
            push(&mut lines, label, check.id, &check.message, check.repair.as_deref());
        }
        let count = |status| self.checks.iter().filter(|check| check.status == status).count();
        lines.push(String::new());
        lines.push(match (self.ok, count(Status::Problem), count(Status::Warning)) {
            (true, _, 0) => "nothing would stop a run".to_owned(),
            (true, _, warnings) => {
                format!("nothing would stop a run ({})", counted(warnings, "warning"))
            }
            (false, problems, warnings) => format!(
                "{} would stop a run ({})",
                counted(problems, "problem"),
                counted(warnings, "warning")
            ),
        });
        if !self.risks.is_empty() {
            lines.push(String::new());
            lines.push("what stays risky:".to_owned());
            for risk in &self.risks {
                push(&mut lines, "risk", risk.id, &risk.message, risk.repair.as_deref());
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

fn push(lines: &mut Vec<String>, label: &str, id: &str, message: &str, repair: Option<&str>) {
    // Paths and words of other programs may hold line breaks.
    lines.push(format!("{label:<8} {id}: {}", terminal::one_line(message)));
    if let Some(repair) = repair {
        lines.push(format!("         repair: {}", terminal::one_line(repair)));
    }
}

fn label(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Info => "info",
        Status::Unknown => "unknown",
        Status::Warning => "warning",
        Status::Problem => "PROBLEM",
    }
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report::new(
            vec![
                Finding::new("a", Status::Ok, "fine"),
                Finding::new("b", Status::Problem, "one\u{1b}[31m\ntwo").repair("mend it"),
            ],
            vec![Risk::new("c", "open").repair("close it"), Risk::new("d", "so it is")],
        )
    }

    #[test]
    fn a_problem_makes_it_not_ok_and_nothing_else_does() {
        assert!(!report().ok);
        let warned =
            vec![Finding::new("a", Status::Warning, ""), Finding::new("b", Status::Unknown, "")];
        assert!(Report::new(warned, vec![Risk::new("c", "open")]).ok);
    }

    #[test]
    fn the_text_has_a_line_for_each_and_no_control_characters() {
        assert_eq!(
            report().text(),
            "ok       a: fine\nPROBLEM  b: one\\u{1b}[31m\\ntwo\n         repair: mend it\n\n\
             1 problem would stop a run (0 warnings)\n\nwhat stays risky:\n\
             risk     c: open\n         repair: close it\nrisk     d: so it is\n"
        );
    }

    #[test]
    fn the_json_has_its_keys_in_their_order() {
        assert_eq!(
            serde_json::to_string(&report()).unwrap(),
            "{\"type\":\"doctor\",\"schema\":1,\"ok\":false,\"checks\":[\
             {\"id\":\"a\",\"status\":\"ok\",\"message\":\"fine\",\"repair\":null},\
             {\"id\":\"b\",\"status\":\"problem\",\"message\":\"one\\u001b[31m\\ntwo\",\"repair\":\"mend it\"}],\
             \"risks\":[{\"id\":\"c\",\"message\":\"open\",\"repair\":\"close it\"},\
             {\"id\":\"d\",\"message\":\"so it is\",\"repair\":null}]}"
        );
    }
}
