//! Writes how a server is reached, as a person would type it: the whole command or URL, without
//! secrets.

use serde_json::{Value, json};

use crate::config::{Transport, place};
use crate::upstream::Server;

/// The length from which on a word may be a key.
const KEY: usize = 20;

/// The command with its variables, or the URL.
pub(super) fn way(server: &Server, transport: &Transport) -> String {
    match transport {
        Transport::Stdio { command, args, env, cwd, .. } => {
            let cwd =
                cwd.as_ref().map(|cwd| format!("cd {} && ", shell(&cwd.display().to_string())));
            let env: String = env.iter().map(|(name, _)| format!("{name}=*** ")).collect();
            // The value after `--token` is hidden, as in the arguments of a call.
            let words: Vec<&String> = [command].into_iter().chain(args).collect();
            let words = seawall::sanitize(&json!(words));
            let words = words.as_array().into_iter().flatten().filter_map(Value::as_str);
            let words: Vec<String> = words
                .map(|word| if is_token(word) { "***" } else { word })
                .map(|word| shell(&server.hidden(word)))
                .collect();
            format!("{}{env}{}", cwd.unwrap_or_default(), words.join(" "))
        }
        Transport::Http { url, .. } | Transport::Sse { url, .. } | Transport::Ws { url, .. } => {
            let query = url.query().map(|_| "?***").unwrap_or_default();
            server.hidden(&format!("{}{query}", place::shown(url)))
        }
        Transport::Incomplete { .. } => "not tried".to_owned(),
    }
}

/// Whether a word is a key with a known prefix, alone or after a `=`.
fn is_token(word: &str) -> bool {
    const BEGIN: [&str; 12] = [
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "sk-",
        "xox",
        "AKIA",
        "eyJ",
        "npm_",
        "hf_",
    ];
    let value = word.rsplit('=').next().unwrap_or(word);
    value.len() >= KEY && BEGIN.iter().any(|begin| value.starts_with(begin))
}

/// A word, quoted for a shell if necessary.
pub(crate) fn shell(word: &str) -> String {
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || "@%+=:,./_-*[]".contains(letter);
    let is_plain = !word.is_empty() && word.chars().all(is_plain);
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
