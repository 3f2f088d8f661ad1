//! What differs from seed to seed: without it, chance would be read as an effect.

use seawall_bench::grid;

use super::arms::Arm;
use super::run::Played;
use super::tally::Tally;

/// What an arm came to, the least and the most of all seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    least: f64,
    most: f64,
}

impl Spread {
    /// Of some figure of an arm; nothing if it did not play.
    pub(crate) fn of(played: &[Played], arm: Arm, figure: impl Fn(&Tally) -> f64) -> Option<Self> {
        let figures = by_seed(played, |it| it.arm == arm).into_iter().map(|tally| figure(&tally));
        figures.fold(None, |spread: Option<Self>, figure| {
            let Self { least, most } = spread.unwrap_or(Self { least: figure, most: figure });
            Some(Self { least: least.min(figure), most: most.max(figure) })
        })
    }

    /// Whether two overlap, so that their difference may be chance.
    fn overlaps(self, other: Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }

    fn shown(self, digits: usize) -> String {
        let [least, most] = [self.least, self.most].map(|figure| format!("{figure:.digits$}"));
        if least == most { least } else { format!("{least}–{most}") }
    }
}

/// The seeds of some cells, each once.
pub(crate) fn seeds(played: &[Played], is_meant: impl Fn(&Played) -> bool) -> Vec<u64> {
    let mut seeds: Vec<u64> = played.iter().filter(|it| is_meant(it)).map(|it| it.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds
}

/// What was seen with each seed.
fn by_seed(played: &[Played], is_meant: impl Fn(&Played) -> bool) -> Vec<Tally> {
    let tally = |seed: &u64| {
        let mut sum = Tally::default();
        played
            .iter()
            .filter(|it| it.seed == *seed && is_meant(it))
            .for_each(|it| sum.add(&it.tally));
        sum
    };
    seeds(played, &is_meant).iter().map(tally).collect()
}

/// A line for each arm: the least and the most of the seeds, and whether its useful answers differ
/// from Seawall's by more.
pub(crate) fn table(arms: &[Arm], played: &[Played]) -> String {
    let head = [
        "arm",
        "useful %",
        "reads %",
        "answerable %",
        "no answer %",
        "duplicates",
        "attempts",
        "beside Seawall",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    let ours = arms.iter().find(|arm| arm.name() == "Seawall");
    let ours = ours.and_then(|arm| Spread::of(played, *arm, Tally::useful_percent));
    for arm in arms {
        let figure = |digits, figure: &dyn Fn(&Tally) -> f64| {
            Spread::of(played, *arm, figure)
                .map_or_else(|| "-".to_owned(), |spread| spread.shown(digits))
        };
        let beside = match (Spread::of(played, *arm, Tally::useful_percent), ours) {
            (Some(theirs), Some(ours)) if arm.name() != "Seawall" => {
                match (theirs.overlaps(ours), theirs.most < ours.least) {
                    (true, _) => "within the spread",
                    (false, true) => "behind",
                    (false, false) => "ahead",
                }
            }
            _ => "",
        };
        lines.push(vec![
            arm.name().to_owned(),
            figure(1, &Tally::useful_percent),
            figure(2, &Tally::reads_percent),
            figure(2, &Tally::answerable_percent),
            figure(1, &|tally| Tally::percent(tally.dark, tally.wanted)),
            figure(0, &|tally| tally.duplicates as f64),
            figure(2, &Tally::attempts_in_outage),
            beside.to_owned(),
        ]);
    }
    grid(&lines)
}

/// The useful answers of some cells, %: of all seeds together, and the least and the most where
/// they differ.
pub(crate) fn useful(played: &[&Played]) -> String {
    let mut sum = Tally::default();
    played.iter().for_each(|it| sum.add(&it.tally));
    let each = played.iter().map(|it| it.tally.useful_percent());
    let (least, most) = each
        .fold((f64::MAX, f64::MIN), |(least, most), figure| (least.min(figure), most.max(figure)));
    let whole = format!("{:.1}", sum.useful_percent());
    if most - least < 0.1 { whole } else { format!("{whole} ({least:.0}–{most:.0})") }
}
