//! Atoms: the names of what can be allowed, what each gates, and what holding it implies.

use std::{fmt, str::FromStr};

use super::words::{distance, shown};

/// The name of one capability.
///
/// Names are stable, lower case and separated by `/`. `tools/standard` is a shorthand that is
/// expanded when a list is read; it is no atom of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// `agent/spawn`
    AgentSpawn,
    /// `extension/spawn-process`
    ExtensionSpawnProcess,
    /// `file/edit`
    FileEdit,
    /// `file/read`
    FileRead,
    /// `file/write`
    FileWrite,
    /// `image/eval`
    ImageEval,
    /// `image/inspect`
    ImageInspect,
    /// `mcp/*`: every tool of every server. It appears among exclusions only.
    McpAll,
    /// `mcp/SERVER/*`: every tool of one server.
    McpServer(String),
    /// `mcp/SERVER/TOOL`
    McpTool(String, String),
    /// `process/exec`
    ProcessExec,
    /// `result/read`
    ResultRead,
    /// `session/control`
    SessionControl,
}

/// A row of the atom table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name, or the pattern of names.
    pub name: &'static str,
    /// What it gates, for people.
    pub gates: &'static str,
    /// What a constraint on it compares; empty when it takes none.
    pub constrained_by: &'static str,
    /// The names that holding it confers as well.
    pub implies: &'static [&'static str],
}

/// The atom table: the only place where names, meanings and implications are written down.
pub const TABLE: &[Row] = &[
    Row {
        name: "file/read",
        gates: "the tools read, find, search and list",
        constrained_by: "",
        implies: &["result/read"],
    },
    Row { name: "file/write", gates: "the tool write", constrained_by: "path", implies: &[] },
    Row {
        name: "file/edit",
        gates: "the tool edit, one request for each file it touches",
        constrained_by: "path",
        implies: &[],
    },
    Row {
        name: "process/exec",
        gates: "the tool bash and its background jobs",
        constrained_by: "command words",
        implies: &["result/read"],
    },
    Row {
        name: "image/inspect",
        gates: "the tool inspect: the model asks what it may do",
        constrained_by: "",
        implies: &["result/read"],
    },
    Row {
        name: "image/eval",
        gates: "the tool eval, and loading an extension's source",
        constrained_by: "",
        implies: &[
            "file/read",
            "file/write",
            "file/edit",
            "process/exec",
            "extension/spawn-process",
            "image/inspect",
        ],
    },
    Row {
        name: "result/read",
        gates: "paging a result that was cut",
        constrained_by: "",
        implies: &[],
    },
    Row {
        name: "extension/spawn-process",
        gates: "starting an MCP server",
        constrained_by: "",
        implies: &[],
    },
    Row {
        name: "mcp/SERVER/TOOL",
        gates: "one tool of an MCP server; `mcp/SERVER/*` is all of them",
        constrained_by: "",
        implies: &[],
    },
    Row {
        name: "agent/spawn",
        gates: "starting a sub-agent, which gets the meet of its parent's authority and what was asked",
        constrained_by: "",
        implies: &[],
    },
    Row {
        name: "session/control",
        gates: "an extension or eval procedure that submits, switches model or profile, or forks",
        constrained_by: "",
        implies: &[],
    },
    Row {
        name: "tools/standard",
        gates: "shorthand in a list of capabilities",
        constrained_by: "",
        implies: &["file/read", "file/write", "file/edit", "process/exec"],
    },
];

/// A name that is no atom.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown capability `{name}`{}", hint(.nearest.as_deref()))]
pub struct UnknownAtom {
    /// The name as it was given.
    pub name: String,
    /// The nearest name that exists, when one is near.
    pub nearest: Option<String>,
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `docs/authority.md` lists the names".to_owned(),
        |name| format!("; did you mean `{name}`?"),
    )
}

impl Atom {
    /// Every atom with a fixed name, in name order.
    pub const FIXED: [Self; 10] = [
        Self::AgentSpawn,
        Self::ExtensionSpawnProcess,
        Self::FileEdit,
        Self::FileRead,
        Self::FileWrite,
        Self::ImageEval,
        Self::ImageInspect,
        Self::ProcessExec,
        Self::ResultRead,
        Self::SessionControl,
    ];

    /// Returns what holding this atom confers directly, by the table.
    pub fn implies(&self) -> Vec<Self> {
        let name = self.to_string();
        TABLE
            .iter()
            .filter(|row| row.name == name)
            .flat_map(|row| row.implies)
            .filter_map(|implied| implied.parse().ok())
            .collect()
    }

    /// Returns this atom and all it confers, over any number of steps, in name order.
    pub fn closure(&self) -> Vec<Self> {
        let mut known = vec![self.clone()];
        let mut next = 0;
        while let Some(atom) = known.get(next).cloned() {
            for implied in atom.implies() {
                if !known.contains(&implied) {
                    known.push(implied);
                }
            }
            next += 1;
        }
        known.sort();
        known
    }

    /// Returns every atom that confers this one, itself included.
    pub fn implied_by(&self) -> Vec<Self> {
        let mut found = vec![self.clone()];
        found.extend(
            Self::FIXED
                .iter()
                .filter(|atom| *atom != self && atom.closure().contains(self))
                .cloned(),
        );
        found
    }

    /// Says whether everything that `other` names is named by this one too (wildcards).
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::McpAll, Self::McpAll | Self::McpServer(_) | Self::McpTool(..)) => true,
            (Self::McpServer(a), Self::McpServer(b) | Self::McpTool(b, _)) => a == b,
            _ => self == other,
        }
    }

    /// Returns the atom that names what both name, when there is such.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if self.includes(other) {
            Some(other.clone())
        } else if other.includes(self) {
            Some(self.clone())
        } else {
            None
        }
    }

    /// Says what a constraint on this atom may compare; `None` when it takes none.
    pub fn constrained_by(&self) -> Option<&'static str> {
        let name = self.to_string();
        TABLE
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.constrained_by)
            .filter(|what| !what.is_empty())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentSpawn => f.write_str("agent/spawn"),
            Self::ExtensionSpawnProcess => f.write_str("extension/spawn-process"),
            Self::FileEdit => f.write_str("file/edit"),
            Self::FileRead => f.write_str("file/read"),
            Self::FileWrite => f.write_str("file/write"),
            Self::ImageEval => f.write_str("image/eval"),
            Self::ImageInspect => f.write_str("image/inspect"),
            Self::McpAll => f.write_str("mcp/*"),
            Self::McpServer(server) => write!(f, "mcp/{server}/*"),
            Self::McpTool(server, tool) => write!(f, "mcp/{server}/{tool}"),
            Self::ProcessExec => f.write_str("process/exec"),
            Self::ResultRead => f.write_str("result/read"),
            Self::SessionControl => f.write_str("session/control"),
        }
    }
}

impl FromStr for Atom {
    type Err = UnknownAtom;

    fn from_str(name: &str) -> Result<Self, UnknownAtom> {
        if let Some(atom) = Self::FIXED.iter().find(|atom| atom.to_string() == name) {
            return Ok(atom.clone());
        }
        if let Some((server, tool)) =
            name.strip_prefix("mcp/").and_then(|rest| rest.split_once('/'))
            && is_mcp_word(server)
        {
            if tool == "*" {
                return Ok(Self::McpServer(server.to_owned()));
            }
            if is_mcp_word(tool) {
                return Ok(Self::McpTool(server.to_owned(), tool.to_owned()));
            }
        }
        let lower = name.to_lowercase();
        let nearest = TABLE
            .iter()
            .filter_map(|row| Some((distance(&lower, row.name, 4)?, row.name)))
            .min()
            .map(|(_, near)| near.to_owned())
            // Every server at once is only taken away, never granted.
            .or_else(|| (name == Self::McpAll.to_string()).then(|| "mcp/SERVER/*".to_owned()));
        Err(UnknownAtom { name: shown(name), nearest })
    }
}

/// Says whether a text may be a server's or a tool's name inside an atom.
fn is_mcp_word(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_table_reads_back_as_itself() {
        for row in TABLE.iter().filter(|row| !row.name.contains("SERVER")) {
            if row.name == "tools/standard" {
                assert!(row.name.parse::<Atom>().is_err());
            } else {
                assert_eq!(row.name.parse::<Atom>().unwrap().to_string(), row.name);
            }
        }
        for atom in Atom::FIXED {
            assert!(TABLE.iter().any(|row| row.name == atom.to_string()), "{atom} has no row");
        }
    }

    #[test]
    fn eval_confers_the_actuators_and_is_dropped_with_each_of_them() {
        let closure = Atom::ImageEval.closure();
        for atom in ["file/read", "file/write", "file/edit", "process/exec", "result/read"] {
            let atom: Atom = atom.parse().unwrap();
            assert!(closure.contains(&atom));
            assert!(atom.implied_by().contains(&Atom::ImageEval));
        }
    }

    #[test]
    fn a_near_miss_is_named() {
        let error = "file/raed".parse::<Atom>().unwrap_err();
        assert_eq!(error.to_string(), "unknown capability `file/raed`; did you mean `file/read`?");
        let error = ":file/read".parse::<Atom>().unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some("file/read"));
        let error = "mcp/*".parse::<Atom>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown capability `mcp/*`; did you mean `mcp/SERVER/*`?",
            "a report prints it among what is taken away"
        );
        for bad in ["", "mcp", "mcp/*", "mcp//x", "mcp/a/b/c", "FILE/READ", "file/read "] {
            assert!(bad.parse::<Atom>().is_err(), "{bad}");
        }
    }

    #[test]
    fn wildcards_include_what_they_should() {
        let server = Atom::McpServer("git".into());
        let tool = Atom::McpTool("git".into(), "log".into());
        let other = Atom::McpTool("github".into(), "log".into());
        assert!(Atom::McpAll.includes(&server) && server.includes(&tool));
        assert!(!server.includes(&other) && !tool.includes(&server));
        assert_eq!(server.intersection(&tool), Some(tool.clone()));
        assert_eq!(tool.intersection(&other), None);
    }
}
