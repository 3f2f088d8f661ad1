//! Decides in whose words something is told.

/// Which words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextStyle {
    /// Plain and declarative.
    #[default]
    Plain,
    /// With symbols and labels, for programs that match on these texts.
    Classic,
    /// GitNexus's own.
    Gitnexus,
}

impl TextStyle {
    /// Whether a fallback introduces itself with the label of the tool's kind.
    pub(crate) fn is_labelled(self) -> bool {
        self != TextStyle::Plain
    }
}

/// How a server that denied access is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeniedText {
    /// As what it is, with the status and the endpoint.
    #[default]
    Diagnostic,
    /// In the words from before denials were told apart, for those who match on them.
    Legacy,
}
