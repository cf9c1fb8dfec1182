// A fleet of BullMQ workers as anybody has it. Arguments: the package, the queue, its prefix, how many jobs at a time.
//
// It does what lines on stdin say, and prints {"done": line} after each: `worker` starts one, `pause` and `resume` are for the
// queue, `add ID` makes a job, `remove ID` removes one, `key PATTERN` waits for a key and `channel PATTERN` for somebody who listens. Each try
// that begins is printed as a line of JSON.
const [, , release, name, prefix, concurrency] = process.argv;
const { DelayedError, Queue, Worker } = require(release);
const Redis = require("ioredis");

const connect = () => new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null });
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const complain = (error) => process.stderr.write(`${error}\n`);

async function perform(job, token) {
  const { id, name, data, opts, attemptsMade, attemptsStarted } = job;
  say({ at: Date.now(), id, name, data, opts, attemptsMade });
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
  if (attemptsMade < (data.fails ?? 0)) throw new Error(`no ${attemptsMade + 1}`);
  return { did: data.n ?? null };
}

let queue;
const theQueue = () => {
  queue ??= new Queue(name, { connection: connect(), prefix });
  queue.on("error", complain);
  return queue;
};

async function found(look) {
  const redis = connect();
  while ((await look(redis)).length === 0) await new Promise((resolve) => setTimeout(resolve, 50));
  redis.disconnect();
}

const commands = {
  async worker() {
    const worker = new Worker(name, perform, { connection: connect(), prefix, concurrency: Number(concurrency) });
    worker.on("error", complain);
    await worker.waitUntilReady();
  },
  pause: () => theQueue().pause(),
  resume: () => theQueue().resume(),
  remove: async (jobId) => (await theQueue().getJob(jobId)).remove(),
  key: (pattern) => found((redis) => redis.keys(pattern)),
  channel: (pattern) => found((redis) => redis.pubsub("CHANNELS", pattern)),
  add: (jobId) => theQueue().add("added", {}, { jobId }),
};

const lines = require("readline").createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const [command, ...rest] = line.split(" ");
  await commands[command](...rest);
  say({ done: line });
});
lines.on("close", () => process.exit(0));
