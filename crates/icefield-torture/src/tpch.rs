//! The keys of TPC-H orders and line items, as the TPC-H generator creates them, without the rest of the rows: the
//! rows' texts are cut from a text of 300 MB, which takes longer to generate than all keys.

use tpchgen::generators::OrderGenerator;

/// Orders of scale factor 1.
pub const ORDERS: u64 = 1_500_000;

/// A number of orders, and their line items: one to seven each.
#[derive(Clone, Copy, Debug)]
pub struct Orders(u64);

impl Orders {
    /// Selects the first `count` orders, which are all orders of the scale factor `count` / [`ORDERS`].
    #[must_use]
    pub fn new(count: u64) -> Self {
        Self(count)
    }

    /// Returns the scale factor.
    #[must_use]
    pub fn scale(self) -> f64 {
        self.0 as f64 / ORDERS as f64
    }

    /// Returns `o_orderkey` of each order, in row order.
    pub fn keys(self) -> impl Iterator<Item = u64> {
        (1..=self.0 as i64).map(|row| OrderGenerator::make_order_key(row).unsigned_abs())
    }

    /// Returns `l_orderkey` of each line item, in row order: the items of an order are consecutive.
    pub fn lines(self) -> impl Iterator<Item = u64> {
        let mut count = OrderGenerator::create_line_count_random();
        self.keys().flat_map(move |key| {
            let lines = count.next_value().unsigned_abs() as usize;
            count.row_finished();
            std::iter::repeat_n(key, lines)
        })
    }
}

#[cfg(test)]
mod tests {
    use tpchgen::distribution::Distributions;
    use tpchgen::generators::LineItemGenerator;
    use tpchgen::text::TextPool;

    use super::*;

    #[test]
    fn keys_are_those_of_the_whole_rows() {
        let (orders, all) = (Orders::new(3_000), Distributions::static_default());
        let texts = TextPool::new(10_000, all);
        let scale = orders.scale();
        let rows =
            OrderGenerator::new_with_distributions_and_text_pool(scale, 1, 1, all, &texts).iter();
        let keys: Vec<u64> = rows.map(|order| order.o_orderkey.unsigned_abs()).collect();
        assert_eq!(orders.keys().collect::<Vec<_>>(), keys);
        let rows =
            LineItemGenerator::new_with_distributions_and_text_pool(scale, 1, 1, all, &texts)
                .iter();
        let keys: Vec<u64> = rows.map(|line| line.l_orderkey.unsigned_abs()).collect();
        assert_eq!(orders.lines().collect::<Vec<_>>(), keys);
    }

    #[test]
    fn the_first_scale_has_the_lines_that_it_is_known_for() {
        assert_eq!(Orders::new(ORDERS).lines().count(), 6_001_215);
    }
}
