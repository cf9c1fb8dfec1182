// A caller in another language: Node with the package `pg`. Writes an order and its task in one transaction each, and
// prints what became of them as JSON.

const { Client } = require("pg");

const ENQUEUE = "SELECT punctual_enqueue($1, $2, run_at => $3, client_request_id => $4, metadata => $5) AS id";

async function order(client, name, end) {
  await client.query("BEGIN");
  await client.query("INSERT INTO orders VALUES ($1)", [name]);
  const values = ["echo", { order: name }, new Date(Date.now() + 10), name, { ownerId: "node" }];
  const { rows } = await client.query(ENQUEUE, values);
  await client.query(end);
  return rows[0].id;
}

async function refusal(client, text, values) {
  try {
    await client.query(text, values);
  } catch (error) {
    return { code: error.code, message: error.message };
  }
  throw new Error("it was not refused");
}

(async () => {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  await client.query("CREATE TABLE orders (name text)");
  const gone = await order(client, "gone", "ROLLBACK");
  const kept = await order(client, "kept", "COMMIT");
  const used = await refusal(client, ENQUEUE, ["echo", {}, null, "kept", null]);
  const bad = await refusal(client, "SELECT punctual_enqueue($1, $2, priority => $3)", ["a b", "{", 101]);
  const { rows } = await client.query("SELECT name FROM orders");
  await client.end();
  console.log(JSON.stringify({ gone, kept, used, bad, orders: rows.map((row) => row.name) }));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
