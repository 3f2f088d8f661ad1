//! Decides how ids are made that cannot be guessed.

/// 128 random bits from the system, as hexadecimal text.
pub(crate) fn secret() -> String {
    let mut bytes = [0; 16];
    // Without randomness no session is safe: an all-zero id could be guessed.
    if getrandom::fill(&mut bytes).is_err() {
        super::log::error("the system gives no randomness");
        super::log::flush();
        std::process::abort();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
