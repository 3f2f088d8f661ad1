//! Decides whether a URI can come from a resource template (RFC 6570), as far as finding its server
//! needs it.

/// A longer URI fits no template: matching takes time in proportion to it.
const LONGEST: usize = 8 << 10;

/// A part of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplatePart<'t> {
    /// Text as it stands.
    Literal(&'t str),
    /// `{var}`, `{.var}`, `{;var}`: one or more characters, none of them a slash.
    Segment,
    /// `{+var}`, `{#var}`, `{/var*}`: one or more characters of any kind.
    Anything,
    /// `{?var}`, `{&var}`: a query, which may be missing.
    Query,
}

/// Whether a URI fits a template.
pub(crate) fn fits(template: &str, uri: &str) -> bool {
    let Some(parts) = parts(template).filter(|_| uri.len() <= LONGEST) else { return false };
    // The places in the URI up to which the parts so far can match.
    let mut reached = vec![false; uri.len() + 1];
    reached[0] = true;
    for part in parts {
        reached = after(part, uri.as_bytes(), &reached);
    }
    reached[uri.len()]
}

/// The places that a part can reach from the places reached before it.
fn after(part: TemplatePart<'_>, uri: &[u8], before: &[bool]) -> Vec<bool> {
    let mut reached = vec![false; before.len()];
    // Whether a part that began before this place may still go on.
    let mut goes_on = false;
    for (at, &is_reached) in before.iter().enumerate() {
        match part {
            TemplatePart::Literal(text) => {
                if is_reached && uri[at..].starts_with(text.as_bytes()) {
                    reached[at + text.len()] = true;
                }
                continue;
            }
            TemplatePart::Segment => goes_on &= at == 0 || uri[at - 1] != b'/',
            TemplatePart::Anything | TemplatePart::Query => {}
        }
        reached[at] |= goes_on || (is_reached && part == TemplatePart::Query);
        let may_begin = part != TemplatePart::Query || matches!(uri.get(at), Some(b'?' | b'&'));
        goes_on |= is_reached && may_begin;
    }
    reached
}

/// The parts of a template; `None` if a brace is not closed.
fn parts(template: &str) -> Option<Vec<TemplatePart<'_>>> {
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some((text, after)) = rest.split_once('{') {
        let (expression, after) = after.split_once('}')?;
        parts.push(TemplatePart::Literal(text));
        let is_list = expression.ends_with('*') || expression.contains(',');
        match expression.as_bytes().first()? {
            b'/' if !is_list => parts.extend([TemplatePart::Literal("/"), TemplatePart::Segment]),
            b'+' | b'#' | b'/' => parts.push(TemplatePart::Anything),
            b'?' | b'&' => parts.push(TemplatePart::Query),
            _ => parts.push(TemplatePart::Segment),
        }
        rest = after;
    }
    parts.push(TemplatePart::Literal(rest));
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_fits_the_template_it_comes_from_and_no_other() {
        for (template, uri, is_so) in [
            ("a://{id}", "a://7", true),
            ("a://{id}", "a://", false),
            ("a://{id}", "a://7/8", false),
            ("a://{id}", "b://7", false),
            ("a://{id}/x", "a://7/x", true),
            ("a://{id}/x", "a://7/y", false),
            ("a://{owner}/{repo}", "a://me/it", true),
            ("a://{owner}/{repo}", "a://me/it/more", false),
            ("a://{one}{two}", "a://xy", true),
            ("a://{one}{two}", "a://x", false),
            ("file:///{+path}", "file:///a/b/c", true),
            ("file:///{+path}", "file:///", false),
            ("file://{/path*}", "file:///a/b", true),
            ("file://{/name}", "file:///a", true),
            ("file://{/name}", "file:///a/b", false),
            ("a://x{?page,size}", "a://x", true),
            ("a://x{?page,size}", "a://x?page=2&size=1", true),
            ("a://x{?page}", "a://xy", false),
            ("a://x?fixed=1{&page}", "a://x?fixed=1&page=2", true),
            ("a://{id}{#part}", "a://7#here/there", true),
            ("a://plain", "a://plain", true),
            ("a://plain", "a://plainer", false),
            ("a://é/{id}", "a://é/ü", true),
            ("a://{id", "a://7", false),
            ("a://{}", "a://7", false),
            ("", "", true),
        ] {
            assert_eq!(fits(template, uri), is_so, "{template} {uri}");
        }
        let long = format!("a://{}", "x".repeat(LONGEST));
        assert!(!fits("a://{id}", &long), "it is not looked at");
    }

    #[test]
    fn many_variables_take_no_more_time_than_their_number() {
        let (template, uri) = ("{a}".repeat(1000), "a".repeat(LONGEST));
        assert!(!fits(&format!("{template}/"), &uri));
    }
}
