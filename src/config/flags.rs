//! The flags of the command line that stand for settings.

use crate::authority::{List, ListError};

use super::{
    duration::{DurationError, parse_duration},
    layers::{Layer, Setting},
    settings::Settings,
    values::{self, ValueError},
};

/// The flags as they were typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--model`
    pub model: Option<String>,
    /// `--effort`
    pub effort: Option<String>,
    /// `--profile`
    pub profile: Option<String>,
    /// `--model-option`, as often as it was given; the last one of a name counts.
    pub model_options: Vec<String>,
    /// `--capabilities`, as often as it was given; they meet.
    pub capabilities: Vec<String>,
    /// `--max-turns`
    pub max_turns: Option<String>,
    /// `--max-tokens`
    pub max_tokens: Option<String>,
    /// `--timeout`
    pub timeout: Option<String>,
}

/// A flag with a value that is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// A value of the wrong kind.
    #[error("{flag}: {source}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// What is wrong.
        source: ValueError,
    },
    /// A length of time that cannot be read.
    #[error("{flag}: {source}")]
    Duration {
        /// The flag.
        flag: &'static str,
        /// What is wrong.
        source: DurationError,
    },
    /// A list of capabilities that cannot be read.
    #[error("{flag}: {source}")]
    Capabilities {
        /// The flag.
        flag: &'static str,
        /// What is wrong.
        source: ListError,
    },
}

impl Flags {
    /// Reads the flags as the topmost layer of settings.
    ///
    /// # Errors
    /// [`FlagError`] names the flag, the value and the repair.
    pub fn settings(&self) -> Result<Settings, FlagError> {
        fn set<T>(
            flag: &'static str,
            text: Option<&String>,
            read: impl FnOnce(&str) -> Result<T, ValueError>,
        ) -> Result<Setting<T>, FlagError> {
            let value = text.map(|text| read(text)).transpose();
            let value = value.map_err(|source| FlagError::Value { flag, source })?;
            Ok(value.map_or_else(Setting::default, |value| Setting::new(value, Layer::Flag)))
        }

        let mut settings = Settings {
            effort: set("--effort", self.effort.as_ref(), values::effort)?,
            profile: set("--profile", self.profile.as_ref(), values::name)?,
            ..Settings::default()
        };
        if let Some(text) = &self.model {
            let choice = values::model(text)
                .map_err(|source| FlagError::Value { flag: "--model", source })?;
            settings.choose(choice, Layer::Flag);
        }
        for text in &self.model_options {
            let (name, value) =
                text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                    let source = ValueError::Option { text: values::shown(text) };
                    FlagError::Value { flag: "--model-option", source }
                })?;
            // What is no JSON is the text as it is, so that words need no quotes.
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            settings.options.insert(name.to_owned(), Setting::new(value, Layer::Flag));
        }
        settings.budgets.turns = set("--max-turns", self.max_turns.as_ref(), values::count)?;
        settings.budgets.tokens = set("--max-tokens", self.max_tokens.as_ref(), values::count)?;
        if let Some(text) = &self.timeout {
            let flag = "--timeout";
            let time =
                parse_duration(text).map_err(|source| FlagError::Duration { flag, source })?;
            settings.budgets.time = Setting::new(time, Layer::Flag);
        }
        let flag = "--capabilities";
        for text in &self.capabilities {
            let list = List::from_names(text)
                .map_err(|source| FlagError::Capabilities { flag, source })?;
            settings.capabilities.push((Layer::Flag.source(flag), list));
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{authority::Source, message::Effort};

    #[test]
    fn flags_are_the_topmost_layer() {
        let flags = Flags {
            model: Some("replay/demo".into()),
            effort: Some("xhigh".into()),
            profile: Some("review".into()),
            model_options: vec![
                "temperature=0".into(),
                "stop=END=1".into(),
                "temperature=0.5".into(),
            ],
            capabilities: vec!["file/read,file/edit".into(), String::new()],
            max_turns: Some("3".into()),
            max_tokens: Some("1000".into()),
            timeout: Some("2m".into()),
        };
        let settings = flags.settings().unwrap();
        assert_eq!(settings.model.get().unwrap().to_string(), "replay/demo");
        assert_eq!(settings.model.layer(), Some(Layer::Flag));
        assert_eq!(settings.effort.get(), Some(&Effort::ExtraHigh));
        let options = settings.model_options();
        assert_eq!(options["temperature"], 0.5);
        assert_eq!(options["stop"], "END=1", "what is no JSON is text");
        assert_eq!(settings.budgets.turns.get(), Some(&3));
        assert_eq!(settings.budgets.tokens.get(), Some(&1000));
        assert_eq!(settings.budgets.time.get(), Some(&Duration::from_mins(2)));
        let [(source, first), (_, second)] = settings.capabilities.as_slice() else {
            panic!("two lists")
        };
        assert_eq!(*source, Source::Flag("--capabilities".into()));
        assert_eq!((first.entries.len(), second.entries.len()), (2, 0));
        assert_eq!(Flags::default().settings().unwrap(), Settings::default());
    }

    #[test]
    fn a_bad_flag_is_named_with_its_value_and_the_repair() {
        let bad = |change: fn(&mut Flags)| {
            let mut flags = Flags::default();
            change(&mut flags);
            flags.settings().unwrap_err().to_string()
        };
        for (error, parts) in [
            (
                bad(|f| f.effort = Some("hihg".into())),
                [
                    "--effort: unknown effort `hihg`, did you mean `high`?",
                    "the levels are `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`",
                ],
            ),
            (
                bad(|f| f.model = Some("gpt 4".into())),
                ["--model: `gpt 4` names no model", "PROVIDER/MODEL"],
            ),
            (
                bad(|f| f.profile = Some("a/b".into())),
                ["--profile: `a/b` cannot be a name", "letters, digits"],
            ),
            (
                bad(|f| f.capabilities.push("file/raed".into())),
                ["--capabilities: unknown capability `file/raed`", "did you mean `file/read`?"],
            ),
            (
                bad(|f| f.model_options.push("temperature".into())),
                ["--model-option: `temperature` sets no option", "`KEY=VALUE`"],
            ),
            (bad(|f| f.model_options.push("=1".into())), ["--model-option: `=1`", "temperature=0"]),
            (bad(|f| f.max_turns = Some("0".into())), ["--max-turns: `0`", "from 1 to"]),
            (bad(|f| f.max_tokens = Some("1k".into())), ["--max-tokens: `1k`", "whole number"]),
            (bad(|f| f.timeout = Some("90".into())), ["--timeout: `90` has no unit", "`90s`"]),
        ] {
            for part in parts {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
