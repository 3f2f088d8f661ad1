//! Names that nobody can guess.

/// 128 bits that nobody can guess, as text.
pub(crate) fn secret() -> String {
    let mut bytes = [0; 16];
    // Without randomness there is no safe session; an all-zero id would be one that can be guessed.
    if getrandom::fill(&mut bytes).is_err() {
        super::log::error("the system gives no randomness");
        super::log::flush();
        std::process::abort();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
