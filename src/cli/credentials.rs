//! Where the key of a provider comes from, in a stated order.

use crate::model::catalogue::Secret;

use super::{
    error::CliError,
    setup::{Setup, read_small},
};

/// Returns a provider's key: the variable first, then the file.
pub(crate) fn key(
    setup: &Setup,
    variable: Option<&str>,
    file: Option<&str>,
) -> Result<Option<Secret>, CliError> {
    if let Some(value) = variable.and_then(|variable| setup.environment.var(variable)) {
        return Ok(Some(Secret::new(value)));
    }
    let Some(file) = file else { return Ok(None) };
    let file = setup.spelled(file)?;
    let missing = |what: &str| {
        CliError::auth(format!("the key file `{}` {what}", file.display()))
            .hint("write the key into it, readable by you alone (chmod 600)")
    };
    let bytes = read_small(&file, 64 * 1024)?.ok_or_else(|| missing("is not there"))?;
    let text = String::from_utf8(bytes).map_err(|_| missing("is not text"))?;
    if text.trim().is_empty() {
        return Err(missing("is empty"));
    }
    Ok(Some(Secret::new(&text)))
}
