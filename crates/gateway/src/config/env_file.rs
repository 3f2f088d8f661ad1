//! Decides how an env file is read: `KEY=VALUE` lines, comments, quotes. Values are not expanded.

/// The variables in their order, or the number of the wrong line. Lines may hold secrets, so
/// problems do not quote them.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut variables = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("has a line {} {what}", index + 1);
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("that is not KEY=VALUE"))?;
        let name = name.trim();
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(wrong("that is not KEY=VALUE"));
        }
        let value = value.trim();
        if value.contains('\0') {
            return Err(wrong("with a NUL character"));
        }
        variables.push((
            name.to_owned(),
            unquote(value).ok_or_else(|| wrong("whose quotes do not match"))?,
        ));
    }
    Ok(variables)
}

fn unquote(value: &str) -> Option<String> {
    if let Some(quoted) = value.strip_prefix('\'') {
        let (text, rest) = quoted.split_once('\'')?;
        return is_nothing(rest).then(|| text.to_owned());
    }
    if let Some(quoted) = value.strip_prefix('"') {
        return unescape(quoted);
    }
    let comment = value.find(" #").unwrap_or(value.len());
    Some(if value.starts_with('#') {
        String::new()
    } else {
        value[..comment].trim_end().to_owned()
    })
}

/// The text up to the closing double quote.
fn unescape(quoted: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '"' => return is_nothing(chars.as_str()).then_some(text),
            '\\' => match chars.next()? {
                'n' => text.push('\n'),
                'r' => text.push('\r'),
                't' => text.push('\t'),
                escaped @ ('"' | '\\' | '$') => text.push(escaped),
                other => text.extend(['\\', other]),
            },
            plain => text.push(plain),
        }
    }
}

fn is_nothing(rest: &str) -> bool {
    let rest = rest.trim_start();
    rest.is_empty() || rest.starts_with('#')
}
