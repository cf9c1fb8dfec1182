//! Small pictures of numbers, as SVG that the page carries itself. Colours come from the stylesheet.

use maud::{Markup, html};

use super::parts::Tone;

/// How large a chart is inside; the page stretches it.
const WIDTH: usize = 600;
const HEIGHT: usize = 72;

/// One column of a chart: what it says when pointed at, how high it is, and how much of that is bad.
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) value: u64,
    pub(crate) bad: u64,
}

/// Columns side by side; `about` says in words what they show.
pub(crate) fn columns(about: &str, columns: &[Column], tone: Tone) -> Markup {
    let most = columns.iter().map(|column| column.value).max().unwrap_or_default().max(1);
    let width = WIDTH as f64 / columns.len().max(1) as f64;
    let height = |value: u64| if value == 0 { 0.0 } else { (value as f64 / most as f64 * HEIGHT as f64).max(2.0) };
    html! {
        svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(about) {
            line.base x1="0" x2=(WIDTH) y1=(HEIGHT) y2=(HEIGHT) {}
            @for (i, column) in columns.iter().enumerate() {
                @let x = i as f64 * width;
                @let (all, bad) = (height(column.value), height(column.bad));
                g {
                    title { (column.title) }
                    rect.back x=(points(x)) y="0" width=(points(width)) height=(HEIGHT) {}
                    rect class=(tone.class()) x=(points(x + width * 0.1)) y=(points(HEIGHT as f64 - all)) width=(points(width * 0.8)) height=(points(all)) {}
                    @if column.bad > 0 {
                        rect.bad x=(points(x + width * 0.1)) y=(points(HEIGHT as f64 - bad)) width=(points(width * 0.8)) height=(points(bad)) {}
                    }
                }
            }
        }
    }
}

/// A line through values, of which some may be missing.
pub(crate) fn line(class: &str, about: &str, values: &[Option<f64>], width: usize, height: usize) -> Markup {
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let step = width as f64 / values.len().saturating_sub(1).max(1) as f64;
    // A little room above and below, so that the line is not cut.
    let y = |value: f64| (height as f64 - 2.0) - value / if most > 0.0 { most } else { 1.0 } * (height as f64 - 4.0);
    let seen: Vec<_> =
        values.iter().enumerate().filter_map(|(i, value)| Some((i as f64 * step, y((*value)?)))).collect();
    let path: Vec<_> = seen.iter().map(|(x, y)| format!("{},{}", points(*x), points(*y))).collect();
    html! {
        svg class={ "chart " (class) } viewBox={ "0 0 " (width) " " (height) } preserveAspectRatio="none" role="img" aria-label=(about) {
            @match seen.as_slice() {
                [] => {}
                [(x, y)] => { circle.dot cx=(points(x.min(width as f64 - 3.0).max(3.0))) cy=(points(*y)) r="2" {} }
                _ => { polyline.line points=(path.join(" ")) {} }
            }
        }
    }
}

fn points(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_high_as_what_they_count() {
        let column = |value, bad| Column { title: format!("{value} of them <{bad}>"), value, bad };
        let drawn = columns("All \"of\" it", &[column(8, 2), column(0, 0), column(4, 4)], Tone::Good).into_string();
        assert!(drawn.contains("aria-label=\"All &quot;of&quot; it\""), "{drawn}");
        let (_, groups) = drawn.split_once("<g>").unwrap();
        let expected = [
            ("8 of them &lt;2&gt;", &[("good", 20.0, 0.0, 160.0, 72.0), ("bad", 20.0, 54.0, 160.0, 18.0)][..]),
            ("0 of them &lt;0&gt;", &[("good", 220.0, 72.0, 160.0, 0.0)]),
            ("4 of them &lt;4&gt;", &[("good", 420.0, 36.0, 160.0, 36.0), ("bad", 420.0, 36.0, 160.0, 36.0)]),
        ];
        for (group, (title, bars)) in groups.split("<g>").zip(expected) {
            let (back, rest) = group.split_once("<rect class=\"back\"").unwrap();
            assert_eq!(back, format!("<title>{title}</title>"));
            let (_, drawn) = rest.split_once("</rect>").unwrap();
            let bar = |(class, x, y, width, height): &(&str, f64, f64, f64, f64)| {
                let size = format!("width=\"{width:.1}\" height=\"{height:.1}\"");
                format!("<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" {size}></rect>")
            };
            let bars: String = bars.iter().map(bar).collect();
            assert_eq!(drawn.trim_end_matches("</svg>"), format!("{bars}</g>"));
        }
        assert_eq!(groups.matches("<g>").count(), 2);
    }

    #[test]
    fn little_beside_much_is_still_seen() {
        let column = |value| Column { title: String::new(), value, bad: 0 };
        let drawn = columns("", &[column(100_000), column(1)], Tone::Busy).into_string();
        assert!(drawn.contains("y=\"70.0\" width=\"240.0\" height=\"2.0\""), "{drawn}");
    }

    #[test]
    fn a_line_goes_through_the_values_that_there_are() {
        for (values, expected) in [
            (&[Some(2.0), None, Some(8.0), Some(4.0)][..], "points=\"0.0,15.5 60.0,2.0 90.0,11.0\""),
            (&[Some(0.0), Some(0.0)], "points=\"0.0,20.0 90.0,20.0\""),
            (&[None, None, Some(3.0)], "<circle class=\"dot\" cx=\"87.0\" cy=\"2.0\" r=\"2\">"),
            (&[None, None], "aria-label=\"x\"></svg>"),
            (&[], "aria-label=\"x\"></svg>"),
        ] {
            let drawn = line("spark", "x", values, 90, 22).into_string();
            assert!(drawn.contains("class=\"chart spark\"") && drawn.contains(expected), "{values:?}: {drawn}");
        }
    }
}
