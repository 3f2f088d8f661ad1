//! Decides the styles in which texts are written.

/// The style of texts for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextStyle {
    /// Plain and declarative.
    #[default]
    Plain,
    /// With symbols and labels, for programs that match on the classic texts.
    Classic,
    /// GitNexus's own texts.
    Gitnexus,
}

impl TextStyle {
    /// Whether a fallback's note begins with the label of the tool's kind.
    pub(crate) fn is_labelled(self) -> bool {
        self != TextStyle::Plain
    }
}

/// The text for a server that denied access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeniedText {
    /// A denial, with the status and the endpoint.
    #[default]
    Diagnostic,
    /// The older sentence that did not tell denials apart, for programs that match on it.
    Legacy,
}
