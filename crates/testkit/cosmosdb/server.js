// Runs the server on a free port of 127.0.0.1, and says which one. It ends when its standard input does, also by the end
// of the test program.
const path = require("path");

const home = path.join(process.env.RAPIDBYTE_COSMOSDB, "node_modules");
const cosmos = require(path.join(home, "@vercel", "cosmosdb-server"));

const server = cosmos.createHttpServer({ keepAlive: true });
// A connection of a test that waits is not ended in between.
server.keepAliveTimeout = 60000;
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`PORT ${server.address().port}\n`);
});
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
