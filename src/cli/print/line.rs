//! The lines of `--output-format stream-json` and of `--log`, and the result object. These types
//! are the contract: the schemas in `schema/` and the tables of `docs/headless.md` are made from
//! them. Within one number of the schema fields and types are added, never removed or changed.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    agent::{Denied, Fault, Outcome, compact::Reason},
    message::Usage,
};

/// The number of the schema.
pub(crate) const SCHEMA: u32 = 1;

/// A line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Line {
    /// The first line of a run that starts: who answers, and what it may do. A run that cannot
    /// start has none.
    Init {
        /// The number of the schema of these lines.
        schema: u32,
        /// The version of kli.
        version: String,
        /// The session's identifier; null when none is kept.
        session: Option<String>,
        /// `PROVIDER/MODEL`.
        model: String,
        /// The profile of the run.
        profile: String,
        /// The tools on offer, by name.
        tools: Vec<String>,
        /// What the run may do, the object that `--print-authority --json` prints.
        authority: Map<String, Value>,
        /// What confines the process: `kli-sandbox`, `outer: …, unverified`, `none` or `unknown`.
        confinement: String,
        /// The physical path of the directory that relative paths start from.
        workspace: String,
    },
    /// The model is being asked.
    TurnStart {
        /// Counted from 1.
        turn: u64,
    },
    /// A piece of the answer.
    Text {
        /// The piece.
        text: String,
    },
    /// A piece of what the model thinks aloud.
    Thinking {
        /// The piece.
        text: String,
    },
    /// A call begins. Calls of one turn may run side by side; `id` tells them apart.
    ToolStart {
        /// The call's identifier.
        id: String,
        /// The tool's name, as the model said it.
        name: String,
        /// The arguments: an object; a string when the model wrote what is none.
        arguments: Arguments,
    },
    /// A piece of what a running call writes, for display: what the model gets is in `toolResult`.
    ToolOutput {
        /// The call's identifier.
        id: String,
        /// The piece.
        text: String,
        /// Bytes before this piece that were left out, because the reader of the lines did not
        /// keep up; absent when there are none.
        #[serde(skip_serializing_if = "is_zero")]
        missing_bytes: u64,
    },
    /// A call has ended.
    ToolResult {
        /// The call's identifier.
        id: String,
        /// The tool's name, as the model said it.
        name: String,
        /// What the model gets to see.
        text: String,
        /// Whether the call failed or was refused.
        is_error: bool,
    },
    /// A call was refused; it had no effect. Its `toolResult` follows.
    Denied {
        /// The call's identifier.
        id: String,
        /// What was refused.
        #[serde(flatten)]
        denied: Denied,
    },
    /// The tokens of a turn's answer, as the provider counts them; absent when it does not.
    Usage {
        /// Which turn's.
        turn: u64,
        /// How many.
        #[serde(flatten)]
        usage: Usage,
        /// What they cost, in the currency of the prices; absent when no price is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
    },
    /// A model is overloaded or not reached, and the next one is asked the same in its place.
    Fallback {
        /// `PROVIDER/MODEL` that was given up.
        from: String,
        /// `PROVIDER/MODEL` that is asked now.
        to: String,
        /// Why.
        reason: String,
    },
    /// A request failed and will be made again.
    Retry {
        /// The number of the retry, from 1.
        attempt: u32,
        /// The most retries there will be.
        of: u32,
        /// Milliseconds until then, at the least.
        after_ms: u64,
        /// Why.
        reason: String,
    },
    /// The conversation was made shorter, as it no longer fits the context window or because it was
    /// asked for. The tokens are estimates.
    Compacted {
        /// Why.
        reason: Reason,
        /// Tokens of a request before.
        before: u64,
        /// Tokens of a request after.
        after: u64,
        /// Results of tools that were trimmed.
        trimmed: usize,
        /// Messages that a summary stands for now; 0 when there is none.
        summarised: usize,
    },
    /// Something to know that is no failure.
    Notice {
        /// A sentence.
        text: String,
    },
    /// The last line, whatever happens.
    Result(Box<RunResult>),
}

/// The arguments of a call.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Arguments {
    /// As they should be.
    Object(Map<String, Value>),
    /// What is no JSON object, as the model wrote it.
    Malformed(String),
}

/// What came of the run: the last line, and the one object of `--output-format json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunResult {
    /// The number of the schema of this object.
    pub(crate) schema: u32,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// The last answer's text; what there was of it when it broke off.
    pub(crate) text: String,
    /// The session's identifier; null when none is kept, or the run did not start.
    pub(crate) session: Option<String>,
    /// `PROVIDER/MODEL` that was asked last; null when the run did not start.
    pub(crate) model: Option<String>,
    /// How often the model was asked.
    pub(crate) turns: u64,
    /// Tokens over all turns.
    pub(crate) usage: Usage,
    /// What they cost, in the currency of the prices; absent when a price or a count is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
    /// Every refused call, in order.
    pub(crate) denied: Vec<Denied>,
    /// Files that the file tools created or changed, each once; what commands change is not listed.
    pub(crate) changed_files: Vec<String>,
    /// Wall time from the prompt to the end, in milliseconds.
    pub(crate) duration_ms: u64,
    /// What went wrong, or null.
    pub(crate) error: Option<Fault>,
    /// Where the time went; only with `--timings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timings: Option<Times>,
}

/// Where the time went, in milliseconds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Times {
    /// From the program's start to the prompt, what waiting for standard input took left out.
    pub(crate) startup_ms: f64,
    /// From the prompt to the first request; null when none was made.
    pub(crate) first_request_ms: Option<f64>,
    /// Bytes of the first request; null when the provider sends none.
    pub(crate) first_request_bytes: Option<u64>,
    /// Each turn, in order.
    pub(crate) turns: Vec<TurnTimes>,
    /// From the prompt to the end.
    pub(crate) total_ms: f64,
}

/// Where the time of one turn went, in milliseconds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the unit belongs to the name in JSON")]
pub(crate) struct TurnTimes {
    /// From the request to the first piece of the answer; null when none came.
    pub(crate) first_token_ms: Option<f64>,
    /// From the request to the end of the answer, failed tries and waits included.
    pub(crate) model_ms: f64,
    /// What its calls took.
    pub(crate) tool_ms: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Returns the JSON schema of a line.
pub(crate) fn events_schema() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Line>()
}

/// Returns the JSON schema of the result object.
pub(crate) fn result_schema() -> Schema {
    /// The one object of `--output-format json`.
    #[derive(Serialize, JsonSchema)]
    #[serde(tag = "type", rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its schema is asked for")]
    enum Only {
        /// What came of the run.
        Result(Box<RunResult>),
    }
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Only>()
}
