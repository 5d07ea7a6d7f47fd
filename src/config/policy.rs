//! The policy: what an administrator fixes. It meets last, and nothing overrides it. A policy that
//! cannot be read as a whole is an error: what it meant to forbid must not be left out.

use crate::authority::{Approve, List, Narrowing, Source};

use super::{
    error::{ConfigError, Problem},
    jsonc::{self, Node},
    keys,
    layers::Layer,
    provider::Provider,
    settings::{Budgets, capabilities, deny_tools},
    values::{self, ModelName, ValueError},
};

/// A policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What any run may do at most.
    pub capabilities: Option<List>,
    /// Tools that no run is offered.
    pub deny_tools: Vec<String>,
    /// Which calls need approval at least.
    pub approve: Approve,
    /// Upper bounds of the budgets.
    pub budgets: Budgets,
    /// The only models; `None` allows all.
    pub allowed_models: Option<Vec<Pattern>>,
    /// The only addresses of providers; `None` allows all.
    pub allowed_addresses: Option<Vec<String>>,
    /// Whether projects may be trusted.
    pub trust_projects: bool,
    /// Whether a run starts only inside `kli-sandbox`.
    pub require_sandbox: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            capabilities: None,
            deny_tools: Vec::new(),
            approve: Approve::Never,
            budgets: Budgets::default(),
            allowed_models: None,
            allowed_addresses: None,
            trust_projects: true,
            require_sandbox: false,
        }
    }
}

/// A model, or every model of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    provider: String,
    /// `None` is every model.
    model: Option<String>,
}

impl Pattern {
    fn read(text: &str) -> Result<Self, ValueError> {
        let ModelName { provider, model } = text.parse()?;
        Ok(Self { provider, model: (model != "*").then_some(model) })
    }

    fn covers(&self, name: &ModelName) -> bool {
        self.provider == name.provider
            && self.model.as_ref().is_none_or(|model| *model == name.model)
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.model.as_deref().unwrap_or("*"))
    }
}

/// What the policy forbids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// A model that is not listed.
    #[error("the policy does not allow the model `{name}`{}", only(.allowed))]
    Model {
        /// The model.
        name: String,
        /// Those that are.
        allowed: Vec<String>,
    },
    /// An address that is not listed.
    #[error("the policy does not allow the address of the provider `{provider}`{}", only(.allowed))]
    Address {
        /// The provider.
        provider: String,
        /// The addresses that are.
        allowed: Vec<String>,
    },
    /// A project is to be trusted.
    #[error(
        "the policy lets no project be trusted; leave it untrusted, or ask who keeps the policy"
    )]
    Trust,
    /// A run without the sandbox.
    #[error(
        "the policy lets kli run only inside `kli-sandbox`; start it through `kli-sandbox run`, or the wrapped `kli`"
    )]
    Unconfined,
}

fn only(names: &[String]) -> String {
    if names.is_empty() {
        return "; it allows none".to_owned();
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("; it allows {}", names.join(", "))
}

impl Policy {
    /// Reads a policy file: as a settings file, but an empty one and an unknown key are errors.
    ///
    /// # Errors
    /// The first [`ConfigError`], with file, line, column and key.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, ConfigError> {
        jsonc::with_root(file, bytes, |root| match root {
            Some(root) => Self::read(&root),
            None => Err(jsonc::head_error(file, Problem::NoPolicy)),
        })
    }

    fn read(root: &Node<'_>) -> Result<Self, ConfigError> {
        let mut policy = Self::default();
        let mut warnings = Vec::new();
        for node in root.known(keys::POLICY, "", &mut warnings)? {
            match node.name() {
                "$schema" => node.string(|_| Ok(()))?,
                "capabilities" => policy.capabilities = Some(capabilities(&node)?),
                "denyTools" => policy.deny_tools = deny_tools(&node)?,
                "approve" => policy.approve = node.string(values::approve)?,
                "budgets" => {
                    policy.budgets =
                        Budgets::read(&node, Layer::Policy, keys::POLICY, &mut warnings)?;
                }
                "allowedModels" => policy.allowed_models = Some(node.strings(Pattern::read)?),
                "allowedAddresses" => {
                    policy.allowed_addresses = Some(node.strings(values::address)?);
                }
                "trustProjects" => policy.trust_projects = node.flag()?,
                "requireSandbox" => policy.require_sandbox = node.flag()?,
                _ => {}
            }
        }
        match warnings.into_iter().next() {
            Some(warning) => {
                Err(ConfigError::new(warning.place, Problem::Unknown { nearest: warning.nearest }))
            }
            None => Ok(policy),
        }
    }

    /// Returns how the policy narrows a run. `resolve` turns a written path into the physical one.
    pub(super) fn narrowings(
        &self,
        resolve: impl Fn(&str) -> std::path::PathBuf,
    ) -> Vec<(Source, Narrowing)> {
        let mut found = Vec::new();
        if let Some(list) = &self.capabilities {
            found.push(list.narrowing(resolve));
        }
        found.push(Narrowing::Tools(self.deny_tools.clone()));
        found.push(Narrowing::Approve(self.approve));
        found.into_iter().map(|narrowing| (Source::Policy, narrowing)).collect()
    }

    /// Checks the model of a run and where its requests go.
    ///
    /// # Errors
    /// [`Forbidden`] names what is allowed instead.
    pub fn permits(&self, name: &ModelName, provider: &Provider) -> Result<(), Forbidden> {
        if let Some(patterns) = &self.allowed_models
            && !patterns.iter().any(|pattern| pattern.covers(name))
        {
            let allowed = patterns.iter().map(ToString::to_string).collect();
            return Err(Forbidden::Model { name: name.to_string(), allowed });
        }
        match (&self.allowed_addresses, provider.address()) {
            (Some(allowed), Some(address)) if !allowed.iter().any(|one| one == address) => {
                Err(Forbidden::Address {
                    provider: name.provider.clone(),
                    allowed: allowed.clone(),
                })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
