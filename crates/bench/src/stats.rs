//! Medians, spreads, and how sure a difference between two medians is.

/// Median, least and greatest of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Nothing of nothing.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[half - 1], values[half]),
            _ => values[half],
        };
        Some(Self { median, min, max })
    }
}

/// The new median divided by the old median, and the range of this ratio in nine cases of ten.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Ratio {
    /// By the bootstrap: medians of samples that are drawn from the samples, always with the same
    /// numbers, so that one log gives one answer. Nothing where the old median is zero.
    pub fn of(old: &[f64], new: &[f64]) -> Option<Self> {
        const ROUNDS: usize = 2000;
        const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
        let median = |values: &[f64]| Some(Spread::of(values.to_vec())?.median);
        let value = median(new)? / median(old).filter(|median| *median > 0.0)?;
        let mut random = SEED;
        let mut draw = |values: &[f64]| -> Vec<f64> {
            (0..values.len())
                .map(|_| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    values[(random % values.len() as u64) as usize]
                })
                .collect()
        };
        let mut ratios = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let (old, new) = (median(&draw(old))?, median(&draw(new))?);
            ratios.push(if old > 0.0 { new / old } else { f64::INFINITY });
        }
        ratios.sort_by(f64::total_cmp);
        Some(Self {
            value,
            low: ratios[ROUNDS / 20],
            high: ratios[ROUNDS - 1 - ROUNDS / 20],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]).expect("there are values");
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_clear_difference_is_outside_of_its_noise() {
        let old = [1.00, 1.01, 0.99, 1.02, 0.98];
        let slower = old.map(|secs| secs * 1.5);
        let ratio = Ratio::of(&old, &slower).expect("there are values");
        assert!((ratio.value - 1.5).abs() < 1e-9, "{ratio:?}");
        assert!(ratio.low > 1.4 && ratio.high < 1.6, "{ratio:?}");
    }

    #[test]
    fn scattered_times_say_little() {
        let old = [1.0, 2.0, 3.0, 1.5, 2.5];
        let new = [1.2, 2.4, 3.6, 1.8, 3.0];
        let ratio = Ratio::of(&old, &new).expect("there are values");
        assert!((ratio.value - 1.2).abs() < 1e-9, "{ratio:?}");
        assert!(ratio.low < 1.0 && ratio.high > 1.2, "{ratio:?}");
        assert_eq!(Ratio::of(&[0.0], &[1.0]), None);
        assert_eq!(Ratio::of(&[], &[1.0]), None);
    }
}
