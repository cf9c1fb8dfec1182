//! Punctual with one more plugin, `bed`, whose handlers misbehave on demand. The tests of the engine run it; nobody else should.

mod bed;
mod ledger;

use std::process::ExitCode;

fn main() -> ExitCode {
    punctual::main_with(vec![Box::new(bed::Bed)])
}
