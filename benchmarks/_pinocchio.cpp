// Pinocchio from C++, as its documentation advises, in the process of the caller: _pinocchio_cpp.py builds and calls this.
// Accelerations of many states, and runs by Boost's odeint: RK4 at fixed steps, or embedded pairs with error control.

#include <omp.h>

#include <boost/numeric/odeint.hpp>
#include <cmath>
#include <limits>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/algorithm/constrained-dynamics.hpp>
#include <pinocchio/algorithm/joint-configuration.hpp>
#include <pinocchio/algorithm/rnea.hpp>
#include <pinocchio/multibody.hpp>
#include <pinocchio/serialization.hpp>
#include <string>
#include <vector>

using Vector = Eigen::VectorXd;
using State = std::vector<double>;
using Const = Eigen::Map<const Vector>;
namespace odeint = boost::numeric::odeint;

// Of hinges and slides: constant + amplitude sin(frequency t) - damping v - stiffness (q - rest); and a planar spring.
struct Torques {
  const double *constant, *amplitude, *damping, *stiffness, *rest;
  double frequency;
  const double* spring;  // joint, anchor from its hinge, point on its body, stiffness, length; or null
};

struct Robot {
  pinocchio::Model model;
  pinocchio::Data data;
  std::vector<pinocchio::RigidConstraintModel> loops;
  std::vector<pinocchio::RigidConstraintData> held;
  pinocchio::ProximalSettings settings{1e-6, 1e-12, 1};
  Vector constant, amplitude, damping, stiffness, rest, spring, tau;
  Eigen::MatrixXd rates;
  double frequency = 0.0;

  const Vector& acceleration(double t, const Const& q, const Const& v) {
    tau = constant - damping.cwiseProduct(v) + std::sin(frequency * t) * amplitude;
    for (const auto& joint : model.joints)
      if (joint.nv() == 1) tau[joint.idx_v()] -= stiffness[joint.idx_v()] * (q[joint.idx_q()] - rest[joint.idx_v()]);
    if (spring.size()) {
      const int i = int(spring[0]);
      const double c = std::cos(q[i]), s = std::sin(q[i]);
      const double x = c * spring[3] - s * spring[4], y = s * spring[3] + c * spring[4];
      const double dx = spring[1] - x, dy = spring[2] - y;
      tau[i] += spring[5] * (1.0 - spring[6] / std::hypot(dx, dy)) * (x * dy - y * dx);
    }
    if (loops.empty()) return pinocchio::aba(model, data, q, v, tau, pinocchio::Convention::WORLD);
    return pinocchio::constraintDynamics(model, data, q, v, tau, loops, held, settings);
  }

  void operator()(const State& x, State& dx, double t) {
    const Const q(x.data(), model.nq), v(x.data() + model.nq, model.nv);
    Eigen::Map<Vector> dq(dx.data(), model.nq), dv(dx.data() + model.nq, model.nv);
    if (model.nq == model.nv) {
      dq = v;
    } else {
      pinocchio::integrateCoeffWiseJacobian(model, q, rates);
      dq.noalias() = rates * v;
    }
    dv = acceleration(t, q, v);
  }

  template <class Stepper>
  void control(Stepper stepper, State& x, double t1, double first) {
    double t = 0.0, dt = first;
    while (t1 - t > 1e-13 * t1) {
      dt = std::min(dt, t1 - t);
      if (stepper.try_step(std::ref(*this), x, t, dt) == odeint::fail) {
        if (dt < 1e-12 * t1) return std::fill(x.begin(), x.end(), std::numeric_limits<double>::quiet_NaN());
        continue;
      }
      if (model.nq != model.nv) pinocchio::normalize(model, Eigen::Map<Vector>(x.data(), model.nq));
    }
  }

  // Order 4 takes fixed steps of `size`; 5 and 8 have it as their tolerance: 5 is Dormand and Prince's pair, 8 Fehlberg's.
  void run(State& x, double t1, int order, double size) {
    if (order == 4) {
      odeint::runge_kutta4<State> stepper;
      const long steps = std::lround(t1 / size);
      for (long i = 0; i < steps; ++i) {
        stepper.do_step(std::ref(*this), x, i * size, size);
        if (model.nq != model.nv) pinocchio::normalize(model, Eigen::Map<Vector>(x.data(), model.nq));
      }
    } else if (order == 5) {
      control(odeint::make_controlled(size, size, odeint::runge_kutta_dopri5<State>()), x, t1, 1e-3 * t1);
    } else {
      control(odeint::make_controlled(size, size, odeint::runge_kutta_fehlberg78<State>()), x, t1, 1e-3 * t1);
    }
  }
};

extern "C" {

// A robot for each thread. A loop is (joint, joint), and two placements: rotation by columns, and position.
void* make(const char* file, int threads, int loops, const int* joints, const double* places, double gain,
           int iterations, Torques torques) {
  auto* robots = new std::vector<Robot>(threads);
  for (Robot& robot : *robots) {
    pinocchio::serialization::loadFromBinary(robot.model, std::string(file));
    const int n = robot.model.nv;
    const auto copy = [n](const double* x) { return Vector(Const(x, n)); };
    robot.constant = copy(torques.constant), robot.amplitude = copy(torques.amplitude);
    robot.damping = copy(torques.damping), robot.stiffness = copy(torques.stiffness), robot.rest = copy(torques.rest);
    robot.frequency = torques.frequency;
    if (torques.spring) robot.spring = Const(torques.spring, 7);
    robot.rates = Eigen::MatrixXd::Zero(robot.model.nq, n);
    robot.settings.max_iter = iterations;
    robot.data = pinocchio::Data(robot.model);
    const auto place = [places](int i) {
      const double* x = places + 12 * i;
      return pinocchio::SE3(Eigen::Map<const Eigen::Matrix3d>(x), Eigen::Map<const Eigen::Vector3d>(x + 9));
    };
    for (int i = 0; i < loops; ++i) {
      robot.loops.emplace_back(pinocchio::CONTACT_3D, robot.model, joints[2 * i], place(2 * i), joints[2 * i + 1],
                               place(2 * i + 1));
      robot.loops.back().setBaumgarteCorrectorParameters(pinocchio::BaumgarteCorrectorParametersTpl<double>(gain * gain, 2 * gain));
    }
    for (const auto& loop : robot.loops) robot.held.emplace_back(loop.createData());
    if (loops) pinocchio::initConstraintDynamics(robot.model, robot.data, robot.loops, robot.held);
  }
  return robots;
}

// States (count, nq + nv) in place, shared between the threads.
void runs(void* made, int count, double* states, double t1, int order, double size) {
  auto& robots = *static_cast<std::vector<Robot>*>(made);
  const int n = robots[0].model.nq + robots[0].model.nv;
#pragma omp parallel for num_threads(int(robots.size())) schedule(dynamic) if (robots.size() > 1)
  for (int i = 0; i < count; ++i) {
    State x(states + i * n, states + (i + 1) * n);
    robots[omp_get_thread_num()].run(x, t1, order, size);
    std::copy(x.begin(), x.end(), states + i * n);
  }
}

// Accelerations (count, nv) at states (count, nq + nv).
void accelerations(void* made, int count, const double* states, double* found) {
  auto& robots = *static_cast<std::vector<Robot>*>(made);
  const int nq = robots[0].model.nq, nv = robots[0].model.nv;
#pragma omp parallel for num_threads(int(robots.size())) if (robots.size() > 1)
  for (int i = 0; i < count; ++i) {
    const double* x = states + i * (nq + nv);
    Eigen::Map<Vector>(found + i * nv, nv) = robots[omp_get_thread_num()].acceleration(0.0, Const(x, nq), Const(x + nq, nv));
  }
}

// Torques (count, nv) of motions: states (count, nq + nv) and their accelerations (count, nv).
void torques(void* made, int count, const double* states, const double* wanted, double* found) {
  Robot& robot = (*static_cast<std::vector<Robot>*>(made))[0];
  const int nq = robot.model.nq, nv = robot.model.nv;
  for (int i = 0; i < count; ++i) {
    const double* x = states + i * (nq + nv);
    Eigen::Map<Vector>(found + i * nv, nv) =
        pinocchio::rnea(robot.model, robot.data, Const(x, nq), Const(x + nq, nv), Const(wanted + i * nv, nv));
  }
}
}
