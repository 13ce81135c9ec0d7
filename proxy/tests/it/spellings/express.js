// A server on Express with a handler for `/login`. It prints its port, and ends with its standard
// input.
const express = require('express');

const app = express();
app.all('/login', (request, response) => response.send('login'));
app.use((request, response) => response.status(404).send('other'));
app.use((error, request, response, next) => response.status(400).send('other'));

const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit());
process.stdin.resume();
