// A fleet of BullMQ workers as anybody has it. Arguments: the package, the queue, its prefix, how many jobs at a time.
//
// It does what lines on stdin say, and prints {"done": line, "answer": what there is to say} after each: `worker` starts one (with more options
// as JSON), `pause` and `resume` are for the queue as are `limit MANY` (of its jobs together) and `rate MANY MS`, `add ID` makes a job, `later ID MS`
// a delayed one, `remove ID` removes one, `state ID` and `counts` ask, `heard ID EVENT` waits until the queue's events say that of a job and tells
// all they said of it, `blocked` waits for a worker that waits, `key PATTERN` for a key and `channel PATTERN` for somebody who listens. Each try that
// begins is printed as a line of JSON, with how many there are then.
const [, , release, name, prefix, concurrency] = process.argv;
const { DelayedError, Queue, QueueEvents, UnrecoverableError, Worker } = require(release);
const Redis = require("ioredis");

const connect = () => new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null });
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const complain = (error) => process.stderr.write(`${error}\n`);

let together = 0;

async function perform(job, token) {
  together += 1;
  try {
    return await attempt(job, token);
  } finally {
    together -= 1;
  }
}

async function attempt(job, token) {
  const { id, name, opts, attemptsMade, attemptsStarted } = job;
  say({ at: Date.now(), id, name, data: job.data, opts, attemptsMade, together });
  const data = job.data ?? {};
  if (data.progress) await job.updateProgress(data.progress);
  if (attemptsStarted <= (data.delays ?? 0)) {
    await job.moveToDelayed(Date.now() + 20, token);
    throw new DelayedError();
  }
  if (attemptsStarted <= (data.limits ?? 0)) {
    await theQueue().rateLimit(20);
    throw Worker.RateLimitError();
  }
  if (data.sleep) await new Promise((resolve) => setTimeout(resolve, data.sleep));
  if (data.hopeless) throw new UnrecoverableError(data.hopeless);
  if (attemptsMade < (data.fails ?? 0)) throw new Error(`no ${attemptsMade + 1}`);
  return { did: data.n ?? null };
}

let queue;
const theQueue = () => {
  queue ??= new Queue(name, { connection: connect(), prefix });
  queue.on("error", complain);
  return queue;
};

let told;
const theEvents = () => {
  if (told) return told;
  told = [];
  // All of them, from the first that the queue still has.
  const events = new QueueEvents(name, { connection: connect(), prefix, lastEventId: "0-0" });
  events.on("error", complain);
  for (const event of ["added", "waiting", "delayed", "active", "completed", "failed", "retries-exhausted", "duplicated"]) {
    events.on(event, ({ jobId }) => told.push({ jobId, event }));
  }
  return told;
};

async function until(holds) {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 20));
}

async function found(look) {
  const redis = connect();
  await until(async () => (await look(redis)).length > 0);
  redis.disconnect();
}

const commands = {
  async worker(options) {
    const more = JSON.parse(options ?? "{}");
    const worker = new Worker(name, perform, { connection: connect(), prefix, concurrency: Number(concurrency), ...more });
    worker.on("error", complain);
    await worker.waitUntilReady();
  },
  pause: () => theQueue().pause(),
  resume: () => theQueue().resume(),
  async limit(many) {
    await theQueue().setGlobalConcurrency(Number(many));
  },
  async rate(many, ms) {
    await theQueue().setGlobalRateLimit(Number(many), Number(ms));
  },
  state: async (jobId) => (await theQueue().getJob(jobId)).getState(),
  counts: () => theQueue().getJobCounts(),
  async heard(jobId, event) {
    const ofJob = () => theEvents().filter((one) => one.jobId === jobId);
    await until(() => ofJob().some((one) => one.event === event));
    return ofJob().map((one) => one.event);
  },
  blocked: () => found(async (redis) => (await redis.client("LIST")).split("\n").filter((line) => line.includes("cmd=bzpopmin"))),
  remove: async (jobId) => (await theQueue().getJob(jobId)).remove(),
  key: (pattern) => found((redis) => redis.keys(pattern)),
  channel: (pattern) => found((redis) => redis.pubsub("CHANNELS", pattern)),
  async add(jobId) {
    await theQueue().add("added", {}, { jobId });
  },
  async later(jobId, delay) {
    await theQueue().add("added", {}, { jobId, delay: Number(delay) });
  },
};

const lines = require("readline").createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const [command, ...rest] = line.split(" ");
  const answer = await commands[command](...rest);
  say({ done: line, answer });
});
lines.on("close", () => process.exit(0));
