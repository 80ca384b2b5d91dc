//! Turns and medians: every variant once in each round, in alternating order, so that what changes
//! slowly on the machine changes for all of them.

use super::options::AblationOptions;
use crate::error::Result;
use crate::phase::Observer;
use crate::record::Record;

/// A variant of an ablation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) is_ours: bool,
}

impl Variant {
    /// The variant that the product uses.
    pub(super) fn ours(about: &'static str) -> Self {
        Self {
            name: "ours",
            about,
            is_ours: true,
        }
    }

    /// A variant that the product does not use.
    pub(super) fn other(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            is_ours: false,
        }
    }
}

/// Measures the variant with this index once.
pub(super) type Measurement<'a> = dyn FnMut(usize, &mut dyn Observer) -> Result<Record> + 'a;

/// Runs the turns of all variants, and reports each variant.
pub(super) fn run(
    options: &AblationOptions,
    variants: &[Variant],
    turn: &mut Measurement<'_>,
    observer: &mut dyn Observer,
) -> Result<()> {
    let mut turns: Vec<Vec<Record>> = variants.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            turns[index].push(turn(index, observer)?);
        }
    }
    let ours = variants.iter().position(|variant| variant.is_ours);
    let rates_of = |index: usize| -> Vec<f64> {
        let of_variant: &Vec<Record> = &turns[index];
        of_variant.iter().map(|record| record.ops_per_s).collect()
    };
    for (index, variant) in variants.iter().enumerate() {
        let rates = rates_of(index);
        let middle = middle_of(&rates);
        let mut record = turns[index][middle].clone();
        record.ablation = Some(options.ablation.name());
        record.variant = variant.name;
        record.variant_about = Some(variant.about);
        record.is_ours = Some(variant.is_ours);
        record.rounds = Some(options.rounds);
        record.ops_per_s_min = rates.iter().copied().reduce(f64::min);
        record.ops_per_s_max = rates.iter().copied().reduce(f64::max);
        record.speed_to_ours = ours.map(|ours| {
            let pairs = rates.iter().zip(rates_of(ours));
            let shares: Vec<f64> = pairs.map(|(one, other)| one / other.max(1e-9)).collect();
            shares[middle_of(&shares)]
        });
        observer.record(&record)?;
    }
    Ok(())
}

/// Returns the index of the median; of an even number, the lower of the two.
pub(crate) fn middle_of(values: &[f64]) -> usize {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    order[(values.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use pando_sync::time::Duration;

    use super::*;
    use crate::ablation::Ablation;

    #[derive(Default)]
    struct Kept(Vec<Record>);

    impl Observer for Kept {
        fn progress(&mut self, _workload: &str, _share: f64, _ops_per_s: f64) {}
        fn step(&mut self, _workload: &str, _at: Duration, _ops_per_s: f64) {}
        fn record(&mut self, record: &Record) -> Result<()> {
            self.0.push(record.clone());
            Ok(())
        }
    }

    /// The order of variants is reversed in every other round.
    #[test]
    fn variants_take_turns_and_the_median_round_is_reported() {
        let variants = [
            Variant::other("slow", "does more"),
            Variant::ours("does less"),
        ];
        let options = AblationOptions {
            rounds: 3,
            ..AblationOptions::new(Ablation::Queue)
        };
        // Rates of each round: slow, ours.
        let rates = [[1.0, 2.0], [9.0, 10.0], [4.0, 5.0]];
        let (mut order, mut kept) = (Vec::new(), Kept::default());
        let mut turn = |index: usize, _: &mut dyn Observer| {
            let round = order.iter().filter(|one| **one == index).count();
            order.push(index);
            let mut record = Record::new("w", "?", 1, 1);
            record.ops_per_s = rates[round][index];
            Ok(record)
        };
        run(&options, &variants, &mut turn, &mut kept).unwrap();
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        let [slow, ours] = &kept.0[..] else {
            panic!("two records: {:?}", kept.0);
        };
        assert_eq!((slow.variant, slow.ops_per_s), ("slow", 4.0));
        assert_eq!((ours.variant, ours.ops_per_s), ("ours", 5.0));
        assert_eq!(
            slow.speed_to_ours,
            Some(0.8),
            "the median of 0.5, 0.9 and 0.8"
        );
        assert_eq!(ours.speed_to_ours, Some(1.0));
        assert_eq!(
            (slow.ops_per_s_min, slow.ops_per_s_max),
            (Some(1.0), Some(9.0))
        );
        assert_eq!(ours.is_ours, Some(true));
    }
}
