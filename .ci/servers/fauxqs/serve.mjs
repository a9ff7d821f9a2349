// Serves SQS and SNS on 127.0.0.1 alone: fauxqs' own command binds every interface.
import { buildApp } from "fauxqs";

const port = Number(process.argv[2]);
const app = buildApp({ logger: false });
await app.listen({ host: "127.0.0.1", port });
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => app.close().then(() => process.exit(0)));
}
