// Drives the official JavaScript client as its users do and prints what it saw as JSON.
// The server and the key come from TYPESAFE_BASE_URL and TYPESAFE_API_KEY. `node drive.mjs answers|errors|refused`.
import { APIError, TypeSafeClient, choice, noul, score } from "@typesafe-ai/sdk";

const TICKET = "I was charged twice for the same order. I need the extra charge refunded today.";
const questions = {
  refund: noul("Is the customer asking for a refund?"),
  queue: choice("Which team should handle this message?", {
    billing: "Payments, invoices, refunds",
    technical: null,
    sales: "Prices, upgrades",
  }),
  urgency: score("How soon is an answer needed?", ["No time pressure.", "Within a few days.", "Today."]),
  raw: noul(undefined, { true: "The customer is angry." }),
};
const client = new TypeSafeClient();

async function failure(call) {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    return { class: error.constructor.name, status: error.status, request_id: error.requestId, message: error.message };
  }
  return { class: null };
}

const ask = (question, rest = {}) => failure(() => client.systemOne({ state: "s", questions: { q: question }, ...rest }));

const commands = {
  async answers() {
    const { data, response, requestId } = await client.systemOne({ state: TICKET, questions }).withResponse();
    const object = await client.systemOne({ state: { message: TICKET }, questions, model: "jev-1.14.0" });
    return {
      data,
      request_id: requestId,
      content_type: response.headers.get("content-type"),
      pinned: object.model,
      models: await client.models.list(),
    };
  },
  async errors() {
    return {
      "unknown model": await ask(noul("x?"), { model: "jev-1.13" }),
      "unknown type": await ask({ type: "essay", instructions: "x?" }),
      box: await ask({ type: "box", instructions: "Where?" }),
      "no such field": await ask(noul("x?"), { temperature: 0 }),
      "null state": await failure(() => client.systemOne({ state: null, questions })),
      invalid: await ask({ type: "choice", criteria: ["a", "b"] }),
    };
  },
  async refused() {
    return {
      ask: await failure(() => client.systemOne({ state: "s", questions })),
      models: await failure(() => client.models.list()),
    };
  },
};

console.log(JSON.stringify(await commands[process.argv[2]]()));
