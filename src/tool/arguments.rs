//! Reading a call's arguments with tolerance: what a model means without doubt is taken, anything
//! else is a sentence for it. Never a crash.
//!
//! Taken: a number spelled as a string (`" 10"`), a whole number spelled as a fraction (`10.0`), a
//! truth value spelled as a string, a number or a truth value where a text is wanted, `null` where
//! something may be left out, and a list or an object spelled as a JSON string.

use serde_json::{Map, Value};

/// A call's arguments.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    map: &'a Map<String, Value>,
    /// Where the map stands in the call, for errors: empty, or as `edits[2].`.
    at: &'a str,
}

impl<'a> Arguments<'a> {
    /// Reads the arguments of a call.
    pub fn new(map: &'a Map<String, Value>) -> Self {
        Self { map, at: "" }
    }

    /// Reads an object within the arguments; `at` is its place, as `edits[2].`.
    pub fn within(map: &'a Map<String, Value>, at: &'a str) -> Self {
        Self { map, at }
    }

    /// Refuses names that the tool does not know.
    ///
    /// # Errors
    /// A sentence that names the first one and the known ones.
    pub fn known(&self, names: &[&str]) -> Result<(), String> {
        match self.map.keys().find(|name| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(format!(
                "unknown argument `{}{name}`; known are {}",
                self.at,
                names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Says whether an argument is there and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn wrong(&self, name: &str, wanted: &str, value: &Value) -> String {
        format!("`{}{name}` must be {wanted}, not `{}`", self.at, short(value))
    }

    fn missing(&self, name: &str) -> String {
        format!("`{}{name}` is missing", self.at)
    }

    /// Returns a text that must be there.
    ///
    /// # Errors
    /// A sentence when it is missing or no text.
    pub fn text(&self, name: &str) -> Result<String, String> {
        self.optional_text(name)?.ok_or_else(|| self.missing(name))
    }

    /// Returns a text that may be left out.
    ///
    /// # Errors
    /// A sentence when it is no text.
    pub fn optional_text(&self, name: &str) -> Result<Option<String>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string())),
            Some(value) => Err(self.wrong(name, "a text", value)),
        }
    }

    /// Returns a whole number of at least `least` that may be left out.
    ///
    /// # Errors
    /// A sentence when it is none.
    pub fn optional_number(&self, name: &str, least: u64) -> Result<Option<u64>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = match value {
            Value::Number(number) => whole(&number.to_string()),
            Value::String(text) if text.trim().is_empty() => return Ok(None),
            Value::String(text) => whole(text.trim()),
            _ => None,
        };
        match number {
            Some(number) if number >= least => Ok(Some(number)),
            _ => Err(self.wrong(name, &format!("a whole number from {least} on"), value)),
        }
    }

    /// Returns a truth value; false when it is left out.
    ///
    /// # Errors
    /// A sentence when it is none.
    pub fn flag(&self, name: &str) -> Result<bool, String> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(value) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                match text.trim().to_ascii_lowercase().as_str() {
                    "true" | "yes" | "1" => Ok(true),
                    "false" | "no" | "0" | "" => Ok(false),
                    _ => Err(self.wrong(name, "true or false", value)),
                }
            }
        }
    }

    /// Returns a list of objects that must be there and not empty; one object stands for a list of
    /// one.
    ///
    /// # Errors
    /// A sentence when it is missing, empty or no such list.
    pub fn objects(&self, name: &str) -> Result<Vec<Map<String, Value>>, String> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        let parsed = match value {
            Value::String(text) => serde_json::from_str(text).ok(),
            other => Some(other.clone()),
        };
        let items = match parsed {
            Some(Value::Array(items)) => items,
            Some(object @ Value::Object(_)) => vec![object],
            _ => return Err(self.wrong(name, "a list of objects", value)),
        };
        if items.is_empty() {
            return Err(format!("`{}{name}` is an empty list; name at least one", self.at));
        }
        items
            .into_iter()
            .enumerate()
            .map(|(at, item)| {
                let parsed = match &item {
                    Value::String(text) => serde_json::from_str(text).ok(),
                    _ => None,
                };
                match parsed.unwrap_or(item) {
                    Value::Object(map) => Ok(map),
                    other => Err(self.wrong(&format!("{name}[{at}]"), "an object", &other)),
                }
            })
            .collect()
    }
}

/// Reads a whole number: `10`, `+10`, `10.0`.
fn whole(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|b| b == b'0') => {
            whole
        }
        Some(_) => return None,
        None => text,
    };
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Returns a value as JSON, cut for a sentence.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with<T>(value: Value, read: impl Fn(Arguments<'_>) -> T) -> T {
        let map = Map::from_iter([("x".to_owned(), value)]);
        read(Arguments::new(&map))
    }

    #[test]
    fn numbers_are_taken_as_they_are_meant() {
        for value in
            [json!(10), json!("10"), json!(" 10"), json!("+10"), json!(10.0), json!("10.0")]
        {
            assert_eq!(with(value, |a| a.optional_number("x", 1)), Ok(Some(10)));
        }
        for value in [json!(null), json!("")] {
            assert_eq!(with(value, |a| a.optional_number("x", 1)), Ok(None));
        }
        for value in
            [json!(-1), json!(0), json!("ten"), json!(1.5), json!([1]), json!(1e300), json!("1.")]
        {
            let shown = value.to_string();
            let error = with(value, |a| a.optional_number("x", 1)).unwrap_err();
            assert!(error.starts_with("`x` must be a whole number from 1 on, not `"), "{error}");
            assert!(error.contains(&shown.chars().take(3).collect::<String>()), "{error}");
        }
    }

    #[test]
    fn texts_and_flags_are_taken_as_they_are_meant() {
        assert_eq!(with(json!(123), |a| a.text("x")), Ok("123".to_owned()));
        assert_eq!(with(json!(true), |a| a.text("x")), Ok("true".to_owned()));
        assert_eq!(with(json!(null), |a| a.text("x")), Err("`x` is missing".to_owned()));
        assert_eq!(
            with(json!(["a"]), |a| a.text("x")),
            Err("`x` must be a text, not `[\"a\"]`".to_owned())
        );
        for value in [json!(true), json!("true"), json!("True "), json!(1), json!("1")] {
            assert_eq!(with(value, |a| a.flag("x")), Ok(true));
        }
        for value in [json!(false), json!("false"), json!(0), json!(null)] {
            assert_eq!(with(value, |a| a.flag("x")), Ok(false));
        }
        assert!(with(json!("perhaps"), |a| a.flag("x")).is_err());
    }

    #[test]
    fn a_list_of_objects_may_be_one_object_or_json_in_a_string() {
        for value in
            [json!([{"a": 1}]), json!({"a": 1}), json!("[{\"a\": 1}]"), json!(["{\"a\": 1}"])]
        {
            let objects = with(value, |a| a.objects("x")).unwrap();
            assert_eq!(objects.len(), 1);
            assert_eq!(objects[0]["a"], 1);
        }
        for (value, error) in [
            (json!([]), "`x` is an empty list; name at least one"),
            (json!("nonsense"), "`x` must be a list of objects, not `\"nonsense\"`"),
            (json!([3]), "`x[0]` must be an object, not `3`"),
        ] {
            assert_eq!(with(value, |a| a.objects("x")), Err(error.to_owned()));
        }
    }

    #[test]
    fn unknown_names_are_named() {
        let map = Map::from_iter([("paht".to_owned(), json!("a"))]);
        assert_eq!(
            Arguments::within(&map, "edits[0].").known(&["path", "start"]),
            Err("unknown argument `edits[0].paht`; known are `path`, `start`".to_owned())
        );
    }
}
