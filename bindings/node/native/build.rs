//! Tells the linker how node loads the library.

fn main() {
    napi_build::setup();
}
