//! Suggests the right command line where one is almost right.

use crate::check::reached::shell;

/// Options of `run` that take the next word as their value.
const WITH_VALUE: [&str; 2] = ["--config", "--name"];

/// The corrected command line of a `run` whose `--` is missing; `None` if that is not the mistake.
pub(super) fn run_line(arguments: &[String]) -> Option<String> {
    let (first, rest) = arguments.split_first()?;
    if first != "run" || rest.iter().any(|word| word == "--") {
        return None;
    }
    let mut at = 0;
    while rest.get(at)?.starts_with('-') {
        at += if WITH_VALUE.contains(&rest[at].as_str()) { 2 } else { 1 };
    }
    if rest[at].contains("://") {
        return None;
    }
    let words = rest[..at].iter().map(|word| shell(word)).chain(["--".to_owned()]);
    let words: Vec<String> = words.chain(rest[at..].iter().map(|word| shell(word))).collect();
    Some(format!("seawall run {}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &str) -> Option<String> {
        run_line(&arguments.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_without_its_dashes_is_told_with_them() {
        assert_eq!(line("run npx").as_deref(), Some("seawall run -- npx"));
        assert_eq!(
            line("run --name a npx -y foo").as_deref(),
            Some("seawall run --name a -- npx -y foo")
        );
        assert_eq!(
            line("run --no-catalog-cache --name=a npx $x").as_deref(),
            Some("seawall run --no-catalog-cache --name=a -- npx '$x'")
        );
        for other in [
            "run -- npx",
            "run https://a.example/mcp --nmae x",
            "run --name",
            "run",
            "serve npx",
            "run -x",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
    }
}
