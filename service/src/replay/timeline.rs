//! Requests and refusals over time, as a picture of a bounded number of steps.

use std::fmt::Write;
use std::time::Duration;

/// The most steps. With more, two become one.
const STEPS: usize = 240;
/// The size of the picture, and the room for its texts.
const WIDTH: usize = 960;
const HEIGHT: usize = 320;
const ROOM: usize = 60;

/// Requests and refusals of each step.
pub(super) struct Timeline {
    begin: Option<u64>,
    /// In seconds.
    step: u64,
    steps: Vec<[u64; 2]>,
}

impl Timeline {
    pub(super) fn new() -> Timeline {
        Timeline { begin: None, step: 60, steps: Vec::new() }
    }

    /// Adds a request. Its time is not before that of the first one.
    pub(super) fn add(&mut self, at: Duration, is_refused: bool) {
        let seconds = at.as_secs();
        let begin = *self.begin.get_or_insert(seconds - seconds % 60);
        let mut index = (seconds - begin) / self.step;
        while index >= STEPS as u64 {
            let pairs = self.steps.chunks(2);
            self.steps = pairs
                .map(|pair| pair.iter().fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]]))
                .collect();
            self.step *= 2;
            index = (seconds - begin) / self.step;
        }
        let index = index as usize;
        if self.steps.len() <= index {
            self.steps.resize(index + 1, [0; 2]);
        }
        self.steps[index][0] += 1;
        self.steps[index][1] += u64::from(is_refused);
    }

    /// Returns the refused share of each of at most `columns` stretches, as blocks.
    pub(super) fn blocks(&self, columns: usize) -> String {
        const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let stretch = self.steps.len().div_ceil(columns).max(1);
        let share = |steps: &[[u64; 2]]| {
            let (all, refused) = steps.iter().fold((0, 0), |sum, step| (sum.0 + step[0], sum.1 + step[1]));
            // Any refusal is seen.
            BLOCKS[if refused == 0 { 0 } else { (refused * 8).div_ceil(all.max(1)) as usize }]
        };
        self.steps.chunks(stretch).map(share).collect()
    }

    /// Returns the picture as SVG.
    pub(super) fn svg(&self) -> String {
        let most = self.steps.iter().map(|step| step[0]).max().unwrap_or(0).max(1);
        let (across, up) = (WIDTH - 2 * ROOM, HEIGHT - 2 * ROOM);
        let line = |which: usize| {
            let mut points = String::new();
            for (index, step) in self.steps.iter().enumerate() {
                let x = ROOM + across * index / self.steps.len().max(2).saturating_sub(1);
                let y = HEIGHT - ROOM - (step[which] * up as u64 / most) as usize;
                let _ = write!(points, "{x},{y} ");
            }
            points
        };
        let time = |seconds: u64| {
            humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        let begin = self.begin.unwrap_or(0);
        let end = begin + self.step * self.steps.len() as u64;
        let (floor, right) = (HEIGHT - ROOM, WIDTH - ROOM);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"14\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <path d=\"M{ROOM} {ROOM}V{floor}H{right}\" fill=\"none\" stroke=\"#888\"/>\n\
             <polyline points=\"{}\" fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"2\"/>\n\
             <polyline points=\"{}\" fill=\"none\" stroke=\"#d62728\" stroke-width=\"2\"/>\n\
             <text x=\"{ROOM}\" y=\"24\" fill=\"#1f77b4\">requests</text>\n\
             <text x=\"{}\" y=\"24\" fill=\"#d62728\">refused</text>\n\
             <text x=\"{ROOM}\" y=\"{}\">{most} in {} s</text>\n\
             <text x=\"{ROOM}\" y=\"{}\">{}</text>\n\
             <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>\n</svg>\n",
            line(0),
            line(1),
            ROOM + 80,
            ROOM - 8,
            self.step,
            floor + 24,
            time(begin),
            floor + 24,
            time(end),
        )
    }
}
